"""Trains spelling models for out-of-vocabulary words."""

COMMANDS = {'spell': ('command', 'train the spelling model that score --open and generate --open require')}
