"""Exploration of learned word features: neighbours, maps and export."""

COMMANDS = {'features': ('command', 'print neighbours of words, and draw maps of or export word features')}
