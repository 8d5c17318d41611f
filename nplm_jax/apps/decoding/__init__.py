"""Decodes speech recognizer outputs by CTC beam search, and re-ranks n-best lists."""

COMMANDS = {
    'decode': ('decode', 'decode CTC emissions into words by beam search with trained models'),
    'rescore': ('rescore', 're-rank n-best lists and tune the weights'),
}
