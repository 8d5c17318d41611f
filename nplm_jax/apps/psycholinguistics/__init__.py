"""Tools for psycholinguistics, which measure the surprisal of stimuli, evaluate minimal pairs, and predict reading
times.
"""

COMMANDS = {
    'surprisal': ('surprisal', 'compute the surprisal, entropy and rank of words in an experiment'),
    'pairs': ('pairs', 'evaluate models on minimal pairs'),
    'reading-times': ('reading_times', 'measure how much surprisal improves predictions of reading times'),
}
