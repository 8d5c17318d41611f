"""Words outside the vocabulary: features induced from a few contexts, and spelling."""

COMMANDS = {'spell': ('command', 'the spelling of words outside the vocabulary, for score --open and generate --open')}
