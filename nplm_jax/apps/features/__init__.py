"""Finds neighbours of words by their learned features, draws maps of the features, and exports them."""

COMMANDS = {
    'features': ('command', 'print the neighbours of words, draw maps of word features, and export the features')
}
