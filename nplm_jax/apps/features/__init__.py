"""Explores learned word features: neighbours, maps and export."""

COMMANDS = {
    'features': ('command', 'print the neighbours of words, draw maps of word features, and export the features')
}
