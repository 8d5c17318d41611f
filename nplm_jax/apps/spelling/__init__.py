"""The spelling of words outside the vocabulary."""

COMMANDS = {'spell': ('command', 'train the spelling of unknown words for score --open and generate --open')}
