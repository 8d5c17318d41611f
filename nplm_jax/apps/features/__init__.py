"""Exploration of learned word features: neighbours, maps and export."""

COMMANDS = {'features': ('command', 'print the neighbours of words, and draw or export word features')}
