"""Exploration of learned word features: neighbours, maps and export."""

COMMANDS = {'features': ('command', 'print neighbours of words, draw maps, and export word features')}
