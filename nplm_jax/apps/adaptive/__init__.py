"""Models that adapt to their input: caches and dynamic evaluation."""

COMMANDS = {'adapt': ('command', 'evaluate models with caches and dynamic evaluation')}
