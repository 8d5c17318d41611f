"""A browser-based explorer of trained models: data (view), links (state), layout (page), HTTP (server) and a tour."""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
