"""Explorer of trained models in a browser: data (view), links (state), layout (page), HTTP (server) and a tour."""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
