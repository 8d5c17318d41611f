"""The learned word features: neighbours, maps, files for other tools."""

COMMANDS = {'features': ('command', 'print neighbours of word features, draw maps, export to other tools')}
