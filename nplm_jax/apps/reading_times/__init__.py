"""Reading times: how much better they are predicted with a model's surprisal than by length and frequency alone."""

COMMANDS = {'reading-times': ('command', 'how much better surprisal predicts reading times than length and frequency')}
