"""Spelling models of out-of-vocabulary words."""

COMMANDS = {'spell': ('command', 'train a spelling model of unknown words for score --open and generate --open')}
