"""Trained models in a browser: data (view), links (state), layout (page), HTTP (server), and the tour."""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
