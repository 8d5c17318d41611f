"""CTC beam search for speech recognition, and re-ranking of n-best lists."""

COMMANDS = {
    'decode': ('decode', 'decode CTC emissions into words by beam search with trained models'),
    'rescore': ('rescore', 're-rank n-best lists and tune the weights'),
}
