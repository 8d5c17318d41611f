"""Models that adapt to their input: caches and dynamic evaluation."""

COMMANDS = {'adapt': ('command', 'adapt models to the text by caches and dynamic evaluation')}
