"""Explores trained models in a browser.

    nplm explore runs/brown-mlp9 runs/brown-kneser_ney_5

Opens a local page. For the text that you type, the page shows the next words predicted by each model and by their
mixture, and the surprisal of each word under each model. Sliders set the mixture weights. Clicking a word appends it
and shows its neighbours on a map of the networks' features. Any model can continue the text. The URL of the page
stores its state, so you can bookmark it. A button lists the keyboard shortcuts. The command requires NiceGUI and
scikit-learn (pip install "nplm-jax[explore]"), but no internet connection. Press Ctrl-C to stop the server.

--tour shows the computation of the paper's network instead: the features, hidden units, scores and softmax for a
context that you type, and the training curve. The network may still be training. If an n-gram run is also given, the
tour shows its predictions for comparison.

--tour --output=FILE.html writes the tour of one finished run to a file that opens in any browser without a server.

The server accepts only requests that are addressed to this machine or --host. It does not require a password.
"""

import argparse

from nplm_jax.apps.explorer import server, static_tour
from nplm_jax.apps.explorer.tour import Tour
from nplm_jax.cli.parser import CONTEXT, Parser
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.packages import require_package


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = CONTEXT
    parser.add_model_flags()
    host = 'IP address or name of the host to listen on; default: 127.0.0.1, which only this machine can reach'
    parser.add_argument('--host', default='127.0.0.1', help=host)
    port = 'port to listen on; 0 means any free port; default: 8080'
    parser.add_argument('--port', type=int, default=8080, metavar='N', help=port)
    parser.add_switch('--no_browser', 'print the address without opening a browser')
    what = 'show the tour of a run with model.family=nplm, which may still be training, and optionally of an n-gram run'
    parser.add_switch('--tour', what)
    parser.add_output('with --tour, HTML file to write the tour to; default: serve the tour', metavar='FILE.html')


def main(flags: argparse.Namespace) -> None:
    """Loads the models and serves the page until Ctrl-C."""
    require(0 <= flags.port < 2**16, '--port', flags.port, 'must be between 0 and 65535')
    mixed = 'cannot be used with --tour, which does not mix models'
    require(not (flags.tour and flags.weights), '--weights', flags.weights, mixed)
    if flags.output:
        require(flags.tour, '--output', flags.output, 'requires --tour')
        path, page = expand('--output', flags.output), static_tour.render(Tour.load(flags.runs), flags.tokens)
        write_atomically(path, page)
        print(f'{path}: {len(page.encode()):,} bytes')
        return
    with server.listen(flags.host, flags.port) as listener:  # reports a port in use before loading the models
        require_package('nicegui', server.EXTRA)
        if flags.tour:
            tour = Tour.load(flags.runs)
            app, shows = server.tour_app(tour, flags.tokens), f'the tour of {tour.name}'
        else:
            models = load_models(flags.runs, flags.weights)
            app, shows = server.page_app(models, flags.tokens), ', '.join(models.names)
        server.serve(app, shows, flags.host, listener, not flags.no_browser)
