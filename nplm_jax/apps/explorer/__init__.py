"""Trained models in a browser: data in view, links in state, layout in page, HTTP in server, and the tour."""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
