"""Explore trained models in a browser.

    nplm explore runs/brown-mlp9 runs/brown-kneser_ney_5

Opens a local page: type a prompt and see the next words predicted by each model and by their mixture; weight the models
with sliders; click a word to append it and to see its neighbours on a map of the networks' features; see the surprisal
of each word under each model; let a model continue the text. The address of the page restores its state; the page lists
its keyboard shortcuts. Requires NiceGUI and scikit-learn (pip install "nplm-jax[explore]") but no internet. Ctrl-C
stops the server.

--tour shows the computation of the paper's network instead: the features, hidden units, scores and softmax for a
context that you type, and the training curve, also during training. An n-gram run is shown for comparison if given.

--tour --output=FILE.html writes the tour of one finished run as a file for any browser, which needs neither this
program nor a server.

The server accepts only the host names of this machine and --host. It has no password.
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
    host = 'address to listen on; default: 127.0.0.1, this machine only'
    parser.add_argument('--host', default='127.0.0.1', help=host)
    parser.add_argument('--port', type=int, default=8080, help='port, or 0 for any free one; default: 8080')
    parser.add_switch('--no_browser', 'print the address without opening a browser')
    what = (
        'show the tour of one run of model.family=nplm, finished or in training, with at most one n-gram run beside it'
    )
    parser.add_switch('--tour', what)
    parser.add_output('file to write the tour to; default: serve it', metavar='FILE.html')


def main(flags: argparse.Namespace) -> None:
    """Loads the models and serves the page until Ctrl-C."""
    require(0 <= flags.port < 2**16, '--port', flags.port, 'must be 0 to 65535')
    mixed = 'must not be given with --tour, which mixes no models'
    require(not (flags.tour and flags.weights), '--weights', flags.weights, mixed)
    if flags.output:
        require(flags.tour, '--output', flags.output, 'must be given with --tour')
        path, page = expand('--output', flags.output), static_tour.render(Tour.load(flags.runs))
        write_atomically(path, page)
        print(f'{path}: {len(page.encode()):,} bytes')
        return
    with server.listen(flags.host, flags.port) as listener:  # first: reports a port in use before loading the models
        require_package('nicegui', server.EXTRA)
        if flags.tour:
            tour = Tour.load(flags.runs)
            app, shows = server.tour_app(tour, flags.tokens), f'the tour of {tour.name}'
        else:
            models = load_models(flags.runs, flags.weights)
            app, shows = server.page_app(models, flags.tokens), ', '.join(models.names)
        server.serve(app, shows, flags.host, listener, not flags.no_browser)
