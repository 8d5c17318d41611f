"""Explore trained models in a browser.

    nplm explore runs/brown-mlp9 runs/brown-kneser_ney_5

Opens a local page: type a prompt and see what each model, and the mixture of all, expects next; weigh the models with
sliders; click a word to append it and to see its neighbours on a map of the networks' features; see how much each word
of the text surprised each model; let a model continue the text. The address restores what is shown; the page lists its
keys. Needs no internet, but NiceGUI and scikit-learn (pip install nicegui scikit-learn). Ctrl-C ends it.

--tour shows the paper's network at work instead: the features, hidden units, scores and softmax for a context that you
type, and the network's training curve, also while it trains. An n-gram run, if given, stands beside it.

The page answers only to the names of this machine and to --host, and to no other site's scripts. It has no password.
"""

import argparse
import errno
import socket

from nplm_jax.cli.parser import CONTEXT, Parser
from nplm_jax.utils.errors import BadInput, require


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


def main(flags: argparse.Namespace) -> None:
    """Loads the models and serves the page until Ctrl-C."""
    require(0 <= flags.port < 2**16, '--port', flags.port, 'must be 0 to 65535')
    with listen(flags.host, flags.port) as listener:  # first, so that it is soon said if another process has the port
        from nplm_jax.runs.command_models import load_models

        try:
            if flags.tour:
                from nplm_jax.apps.explorer import tour, tour_server
            else:
                from nplm_jax.apps.explorer import server
        except ImportError as error:
            raise BadInput('the explorer needs NiceGUI', f'pip install nicegui scikit-learn ({error})') from None
        if flags.tour:
            mixed = 'must not be given with --tour, which mixes no models'
            require(not flags.weights, '--weights', flags.weights, mixed)
            shown = tour.Tour.load(flags.runs)
            tour_server.serve(shown, flags.tokens, flags.host, listener, not flags.no_browser)
            return
        models = load_models(flags.runs, flags.weights)
        port = listener.getsockname()[1]
    server.serve(models, flags.tokens, flags.host, port, not flags.no_browser)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens there. Raises BadInput if the process cannot."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ':' in host else socket.AF_INET)
    except OSError as error:
        hint = '; --port=0 takes any free port' if error.errno == errno.EADDRINUSE else ''
        raise BadInput(f'--host={host!r} --port', f'cannot listen there ({error.strerror}){hint}', value=port) from None
