"""Tools for psycholinguistics: surprisal of stimuli, minimal pairs and reading times."""

COMMANDS = {
    'surprisal': ('surprisal', 'compute the surprisal, entropy and rank of words in an experiment'),
    'pairs': ('pairs', 'evaluate models on minimal pairs'),
    'reading-times': ('reading_times', 'measure how much surprisal improves predictions of reading times'),
}
