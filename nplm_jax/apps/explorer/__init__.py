"""A browser-based explorer of trained models.

The module view computes the data, state stores it in links, page lays it out, server answers requests, and tour shows
how the paper's network computes its predictions.
"""

COMMANDS = {'explore': ('command', 'explore trained models in a browser')}
