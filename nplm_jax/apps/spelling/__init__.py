"""Spelling models of out-of-vocabulary words."""

COMMANDS = {
    'spell': ('command', 'train a spelling model for unknown words, which score --open and generate --open require')
}
