"""Explore trained models in a browser.

    python -m nplm_jax.cli explore --workdir=runs/brown-mlp9 --workdir=runs/brown-kneser_ney_5

Opens a local page: type a beginning and see what each model, and the mixture of all, expects next; click a word to go
on with it and to see its neighbours by the networks' features; see how much each word of the text surprised each
model; let a model write on. Needs NiceGUI (pip install nicegui) and no internet; Ctrl-C ends it.
"""

import socket

from nplm_jax.cli import trained
from nplm_jax.utils.errors import BadInput, require


def main() -> None:
    """Reads the flags, loads the models, serves the page until Ctrl-C."""
    parser = trained.Parser(__doc__)
    parser.add_argument('--host', default='127.0.0.1', help='the address to listen at; by default this machine alone')
    parser.add_argument('--port', type=int, default=8080, help='the port to listen at; 0 is any free one')
    parser.add_argument('--no_browser', action='store_true', help='print the address and open no browser')
    flags = parser.parse_args()
    port = _free(flags.host, flags.port)
    try:
        from nplm_jax.cli import explorer_page  # noqa: PLC0415 (the toolkit is an optional extra)
    except ImportError as error:
        raise BadInput(f'the explorer needs NiceGUI: pip install nicegui ({error})') from None
    models = trained.load(flags.workdir)
    explorer_page.serve(models, flags.tokens, flags.host, port, not flags.no_browser)


def _free(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises: BadInput when it cannot be listened at."""
    require(0 <= port < 2**16, '--port', port, 'must be 0 to 65535')
    try:
        with socket.create_server((host, port)) as listener:
            return listener.getsockname()[1]
    except OSError as error:
        raise BadInput(f'--host={host!r} --port={port}: cannot be listened at ({error.strerror})') from None
