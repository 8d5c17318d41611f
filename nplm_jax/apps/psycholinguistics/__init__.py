"""Psycholinguistics: surprisal of stimuli, minimal pairs, reading times."""

COMMANDS = {
    'surprisal': ('surprisal', 'surprisal, entropy and rank of the words of an experiment, as a table'),
    'pairs': ('pairs', 'minimal pairs: how often the good sentence is the likelier one'),
    'reading-times': ('reading_times', 'how much better surprisal predicts reading times than length and frequency'),
}
