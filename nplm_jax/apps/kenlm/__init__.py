"""KenLM's Python interface over any model, and smaller ARPA files."""

COMMANDS = {'prune': ('prune', 'an ARPA file with fewer n-grams: entropy pruning, or the words of a list')}
