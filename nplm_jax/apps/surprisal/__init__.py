"""Surprisal, entropy and rank of the words of an experiment, for psycholinguists."""

COMMANDS = {'surprisal': ('command', 'surprisal, entropy and rank of the words of an experiment, as a table')}
