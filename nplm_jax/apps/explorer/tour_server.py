"""Serves the tour: a page without a toolkit, and its numbers as JSON."""

import asyncio
import contextlib
import pathlib
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from nplm_jax.apps.explorer import batching
from nplm_jax.apps.explorer.hosts import Gate
from nplm_jax.apps.explorer.state import MAX_WORD
from nplm_jax.apps.explorer.tour import Tour
from nplm_jax.utils.errors import BadInput

FILES = {'/': 'tour.html', '/tour.js': 'tour.js', '/tour.css': 'tour.css', '/style.css': 'style.css'}
BUSY = 'the tour is busy with the texts of others; try again in a moment'
SUPERSEDED = 'the next text has taken the place of this one'


def serve(tour: Tour, kind: str, host: str, listener: socket.socket, open_browser: bool) -> None:
    """Serves the tour until Ctrl-C.

    Args:
        tour: The tour.
        kind: How text is split, as in `words.reading`.
        host: The name or address by which the page is asked for.
        listener: A socket that listens there.
        open_browser: Whether to open the page.
    """
    server = uvicorn.Server(uvicorn.Config(make_app(tour, kind, host), log_level='warning'))
    port = listener.getsockname()[1]
    address = f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'
    print(f'{address} shows the tour of {tour.name}; Ctrl-C ends it', flush=True)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def make_app(tour: Tour, kind: str, host: str) -> Starlette:
    """Returns the application: the page's files, /network?text=TEXT&visitor=ID, /units and /training."""
    tour.show([[]])  # compiles
    batcher = batching.Batcher(tour.show)
    lock = asyncio.Lock()

    async def network(request: Request) -> Response:
        visitor = request.query_params.get('visitor', '')[:MAX_WORD]
        words = tour.encode(request.query_params.get('text', ''), kind)
        try:
            return JSONResponse(await batcher(visitor, words))
        except batching.Busy:
            return JSONResponse({'error': BUSY}, 503)
        except batching.Superseded:
            return JSONResponse({'error': SUPERSEDED}, 409)

    async def units(_: Request) -> Response:
        return JSONResponse(tour.units())

    async def training(_: Request) -> Response:
        async with lock:  # one reads the checkpoint and the log for all
            await asyncio.to_thread(tour.reload)
            return JSONResponse(await asyncio.to_thread(tour.training))

    async def refuse(_: Request, error: Exception) -> Response:
        return JSONResponse({'error': str(error)}, 400)

    def file(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(_: Request) -> Response:
            return FileResponse(pathlib.Path(__file__).with_name(name))

        return answer

    routes = [Route(path, file(name)) for path, name in FILES.items()]
    routes += [Route(f'/{answer.__name__}', answer) for answer in (network, units, training)]
    gate = Middleware(Gate, host=host, num_visitors=lambda: 0)  # a visitor takes no memory
    return Starlette(routes=routes, middleware=[gate], exception_handlers={BadInput: refuse})
