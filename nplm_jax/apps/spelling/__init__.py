"""The spelling of words outside the vocabulary."""

COMMANDS = {'spell': ('command', 'the spelling of words outside the vocabulary, for score --open and generate --open')}
