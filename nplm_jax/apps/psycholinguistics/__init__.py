"""Measures the surprisal of stimuli, evaluates minimal pairs, and analyses reading times, for psycholinguistics."""

COMMANDS = {
    'surprisal': ('surprisal', 'compute the surprisal, entropy and rank of words in an experiment'),
    'pairs': ('pairs', 'evaluate models on minimal pairs'),
    'reading-times': ('reading_times', 'measure how much surprisal improves predictions of reading times'),
}
