"""Serves the explorer's page."""

import contextlib
from functools import partial

from nicegui import Client, app, ui
from starlette.responses import PlainTextResponse, Response

from nplm_jax.apps.explorer import feature_map, view
from nplm_jax.apps.explorer.batching import MAX_BATCH, Batcher, Busy
from nplm_jax.apps.explorer.header import TITLE
from nplm_jax.apps.explorer.hosts import Gate
from nplm_jax.apps.explorer.page import BUSY, ExplorerPage
from nplm_jax.apps.explorer.state import PageState
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.errors import BadInput

PATIENCE = 60.0  # seconds that a new page may wait for its scores


def serve(models: LoadedModels, kind: str, host: str, port: int, open_browser: bool) -> None:
    """Serves the page until Ctrl-C. `kind` says how text is split, as in `words.reading`."""

    @ui.page('/', response_timeout=PATIENCE)
    async def build() -> Response | None:
        """Lays out the page that a link describes; a new page, with a note, if the link is impossible."""
        problem = ''
        try:
            state = PageState.from_query(ui.context.client.request.query_params, len(models.models))
        except BadInput as error:
            state, problem = PageState(), f'the link cannot be restored: {error}'
        score = partial(batcher, ui.context.client.id)
        try:
            scores = await score(models.tokenize(state.text, kind, keep_marks=True))
        except Busy:
            ui.context.client.delete()  # NiceGUI would count it as a visitor for a minute
            return PlainTextResponse(f'{BUSY}\n', 503)
        ExplorerPage(models, kind, state, maps, beginnings, score, scores).build(problem)
        return None

    maps = {name: feature_map.project(C_VxM) for name, C_VxM in models.word_features()}
    beginnings = view.examples(models)
    batcher = Batcher(partial(view.score, models))
    view.warm_up(models, MAX_BATCH)
    app.add_middleware(Gate, host=host, num_visitors=lambda: len(Client.instances))
    address = f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'
    app.on_startup(lambda: print(f'{address} shows {", ".join(models.names)}; Ctrl-C ends it', flush=True))
    with contextlib.suppress(KeyboardInterrupt):
        ui.run(host=host, port=port, title=TITLE, show=open_browser, reload=False, show_welcome_message=False)
