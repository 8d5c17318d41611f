"""Models that adapt to the text that they read: caches and dynamic evaluation."""

COMMANDS = {'adapt': ('command', 'models that adapt to the text: caches and dynamic evaluation')}
