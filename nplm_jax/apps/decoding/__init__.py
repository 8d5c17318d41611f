"""Speech and translation: CTC beam search, and re-ranking of n-best lists."""

COMMANDS = {
    'decode': ('decode', 'words of CTC emissions, by beam search with trained models'),
    'score --nbest': ('rescore', 're-ranking of alternatives, and the tuning of its weights'),
}
