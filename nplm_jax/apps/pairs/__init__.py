"""Minimal pairs of sentences: of how many pairs a trained model finds the good sentence likelier."""

COMMANDS = {'pairs': ('command', 'minimal pairs: how often the good sentence is the likelier one')}
