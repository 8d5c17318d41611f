"""The learned word features: neighbours, maps, files for other tools."""

COMMANDS = {'features': ('command', 'the learned word features: neighbours, maps, files for other tools')}
