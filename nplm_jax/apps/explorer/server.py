"""Serves the explorer's page and the tour, which are FastAPI applications.

A lock ensures that only one request computes at a time. Computations run in a thread outside the event loop.
"""

import asyncio
import contextlib
import errno
import socket
import threading
import webbrowser
from collections.abc import Sequence
from typing import Any

from nplm_jax.apps.explorer import feature_map, view
from nplm_jax.apps.explorer.header import TITLE
from nplm_jax.apps.explorer.page import ExplorerPage
from nplm_jax.apps.explorer.parts import WEB
from nplm_jax.apps.explorer.state import PageState
from nplm_jax.apps.explorer.tour import Tour
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.packages import OptionalPackage

EXTRA = 'explore'
fastapi, ui, uvicorn = (OptionalPackage(name, EXTRA) for name in ('fastapi', 'nicegui.ui', 'uvicorn'))
responses, staticfiles = (OptionalPackage(f'starlette.{name}', EXTRA) for name in ('responses', 'staticfiles'))
trustedhost = OptionalPackage('starlette.middleware.trustedhost', EXTRA)
ALL_ADDRESSES = ('', '0.0.0.0', '::')
PATIENCE = 60.0  # maximum time that a new page waits for its scores (seconds)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address. Raises BadInput if the address cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ':' in host else socket.AF_INET)
    except OSError as error:
        hint = '; --port=0 selects a free port' if error.errno == errno.EADDRINUSE else ''
        raise BadInput(
            f'--host={host!r} --port', f'cannot listen on this address ({error.strerror}){hint}', value=port
        ) from None


def serve(app: Any, shows: str, host: str, listener: socket.socket, open_browser: bool) -> None:
    """Serves an application until Ctrl-C is pressed.

    Requests must be addressed to `host` or this machine. Another site could otherwise let its own name point to this
    machine and read the page (DNS rebinding). A server that listens on all addresses accepts any name.

    Args:
        app: The application.
        shows: A description of the page, printed with the address.
        host: The host name or address of the page.
        listener: The listening socket.
        open_browser: Whether to open the page.
    """
    name = f'[{host}]' if ':' in host else host
    own = ['*'] if host in ALL_ADDRESSES else ['127.0.0.1', 'localhost', '[::1]', name]
    app.add_middleware(trustedhost.TrustedHostMiddleware, allowed_hosts=own, www_redirect=False)
    address = f'http://{name}:{listener.getsockname()[1]}'
    print(f'{address} shows {shows}; press Ctrl-C to stop', flush=True)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(app, log_level='warning')).run(sockets=[listener])


def page_app(models: LoadedModels, kind: str) -> Any:
    """Returns the application of the explorer's page. For `kind`, the way to tokenize text, see `words.reading`."""
    maps = {name: feature_map.project(C_VxM) for name, C_VxM in models.word_features()}
    beginnings, lock = view.examples(models), asyncio.Lock()
    view.warm_up(models)

    async def score(words: Sequence[str]) -> view.Scores:
        async with lock:
            return await asyncio.to_thread(view.score, models, words)

    @ui.page('/', response_timeout=PATIENCE)
    async def build() -> None:
        """Lays out the page described by a link, or a new page with a note if the link is invalid."""
        problem = ''
        try:
            state = PageState.from_query(ui.context.client.request.query_params, len(models.models))
        except BadInput as error:
            state, problem = PageState(), f'the link cannot be restored: {error}'
        scores = await score(models.tokenize(state.text, kind, keep_marks=True))
        ExplorerPage(models, kind, state, maps, beginnings, score, scores).build(problem)

    app = fastapi.FastAPI(openapi_url=None)
    ui.run_with(app, title=TITLE, show_welcome_message=False)
    return app


def tour_app(tour: Tour, kind: str) -> Any:
    """Returns the application of the tour, which serves its files, /network?text=TEXT, /units and /training.

    For `kind`, see `page_app`.
    """
    app, lock = fastapi.FastAPI(openapi_url=None), threading.Lock()

    @app.get('/network')
    def network(text: str = '') -> dict[str, Any]:
        with lock:
            return tour.show(tour.encode(text, kind))

    @app.get('/units')
    def units() -> dict[str, Any]:
        return tour.units()

    @app.get('/training')
    def training() -> dict[str, Any]:
        with lock:
            tour.reload()
            return tour.training()

    @app.exception_handler(BadInput)
    def refuse(_: Any, error: BadInput) -> Any:
        return responses.JSONResponse({'error': str(error)}, 400)

    app.mount('/', staticfiles.StaticFiles(directory=WEB, html=True))
    return app
