"""Speech and translation: CTC beam search, and re-ranking of n-best lists."""

COMMANDS = {
    'decode': ('decode', 'words from CTC emissions, by beam search with trained models'),
    'rescore': ('rescore', 're-ranking of n-best lists, and the tuning of its weights'),
}
