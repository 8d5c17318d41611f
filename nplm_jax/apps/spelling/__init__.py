"""Spelling models of out-of-vocabulary words."""

COMMANDS = {'spell': ('command', 'train a spelling model for unknown words, for score --open and generate --open')}
