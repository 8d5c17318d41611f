"""Trained models in a browser: view has the page's data, state its link, page its layout, server both pages."""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
