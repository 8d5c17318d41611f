"""The explorer's page: NiceGUI elements that show the data of explorer_view.py. Each visitor has a separate text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import app, run, ui

from nplm_jax.cli import explorer_view
from nplm_jax.cli.loaded_models import LoadedModels
from nplm_jax.inference.generation import Choice
from nplm_jax.utils.errors import BadInput, require

MAX_COLOURED = 60  # the last words of a long text
MAX_BITS = 16  # of surprisal, for the full colour
GRID = 'grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr))'
# The fields of continuing a text: label, initial value, minimum, maximum. A field without initial value may stay empty.
FIELDS = {
    'words': ('words', 20, 1, 500),
    'samples': ('samples', 3, 1, 50),
    'seed': ('seed', 1, 0, 2**31 - 1),
    'temperature': ('temperature', 1.0, 0.05, 10),
    'top_k': ('top k', None, 1, None),
    'top_p': ('top p', None, 0.01, 1),
}


def serve(models: LoadedModels, kind: str, host: str, port: int, open_browser: bool) -> None:
    """Serves the page until Ctrl-C. `kind` says how text is split, as in `tokenize_prompt`."""
    ui.page('/')(partial(build, models, kind))
    app.on_startup(lambda: print(f'http://{host}:{port} shows {", ".join(models.names)}; Ctrl-C ends it', flush=True))
    title = 'nplm-jax explorer'
    with contextlib.suppress(KeyboardInterrupt):
        ui.run(host=host, port=port, title=title, show=open_browser, reload=False, show_welcome_message=False)


def build(models: LoadedModels, kind: str) -> None:
    """Lays out the page of one visitor."""

    def tokenize() -> list[str]:
        return models.tokenize(prompt.value or '', kind)

    def select_word(selected: str) -> None:
        word.set_value(selected)

    def append_word(selected: str) -> None:
        select_word(selected)
        prompt.set_value(f'{prompt.value or ""} {selected}'.strip())

    def drop_last_word() -> None:
        prompt.set_value(' '.join((prompt.value or '').split()[:-1]))

    @ui.refreshable
    def show_predictions() -> None:
        words = tokenize()
        _note(models.describe_unknown(words))
        predictions = explorer_view.predict(models, words, int(count.value))
        _surprisals(words, predictions, select_word)
        _heading('What may come next: click a word to append it')
        _cards('next', [(p.name, p.next_words) for p in predictions], append_word)

    @ui.refreshable
    def show_neighbours() -> None:
        selected = (word.value or '').strip()
        _note(models.describe_unknown([selected] if selected else []))
        _cards('neighbours', explorer_view.neighbours(models, selected, int(count.value)), select_word)

    async def show_continuations() -> None:
        continuations.clear()
        problem = ''
        with continuations:
            ui.spinner()
        try:
            words, samples, seed, *choice = (_value(key, field.value) for key, field in fields.items())
            arguments = models, source.value, tokenize(), words, samples, Choice(*choice), seed
            lines = await run.io_bound(explorer_view.continue_text, *arguments)
        except BadInput as error:
            lines, problem = [], str(error)
        if lines is None or continuations.is_deleted:  # the page was closed meanwhile
            return
        continuations.clear()
        with continuations:
            _note(problem)
            for line in lines:
                ui.label(f'… {line}').classes('written')

    with ui.row().classes('w-full items-end'):
        prompt = ui.input('a beginning', on_change=show_predictions.refresh).classes('grow')
        prompt.props('clearable autofocus debounce=300')
        ui.button('drop the last word', on_click=drop_last_word).props('flat no-caps')
        ui.label('words listed')
        count = ui.slider(min=1, max=50, value=10).props('label').style('width: 9rem')
        count.on_value_change(lambda: (show_predictions.refresh(), show_neighbours.refresh()))
    show_predictions()
    _heading("Neighbours by the networks' features: type a word or click one")
    word = ui.input('a word', on_change=show_neighbours.refresh).props('clearable debounce=300')
    show_neighbours()
    _heading('Let a model continue the text')
    with ui.row().classes('items-end'):
        names = dict(enumerate(name for name, _ in models.with_mixture()))
        source = ui.select(names, value=0, label='model').style('min-width: 12rem')
        fields = {
            key: ui.number(label, value=value, min=minimum, max=maximum).style('width: 7rem')
            for key, (label, value, minimum, maximum) in FIELDS.items()
        }
        ui.button('write', on_click=show_continuations).props('no-caps')
    continuations = ui.column().classes('gap-1')


def _surprisals(
    words: Sequence[str], predictions: Sequence[explorer_view.Prediction], on_click: Callable[[str], None]
) -> None:
    """Shows the text once for each model, each word coloured by its surprisal."""
    if not words:
        return
    _heading('How much each word surprised: the stronger the colour the less likely the word was')
    with ui.element('div').classes('w-full grid items-center gap-x-4 gap-y-1').style('grid-template-columns: auto 1fr'):
        for prediction in predictions:
            ui.label(f'{prediction.name}: perplexity {prediction.perplexity:,.1f}').classes('perplexity')
            with ui.row().classes('gap-1'):
                for word, bits in list(zip(words, prediction.bits_T.tolist()))[-MAX_COLOURED:]:
                    opacity = min(bits / MAX_BITS, 1)
                    label = ui.label(word).classes('surprise cursor-pointer rounded px-1').tooltip(f'{bits:.1f} bits')
                    label.style(f'background: rgb(234 88 12 / {opacity:.0%})').on('click', partial(on_click, word))


def _cards(
    role: str, columns: Sequence[tuple[str, explorer_view.WeightedWords]], on_click: Callable[[str], None]
) -> None:
    """Shows one card for each model: words to click, each before a bar as long as its number."""
    with ui.element('div').classes('w-full grid gap-4').style(GRID):
        for name, words in columns:
            with ui.card().classes('gap-0 p-2').classes(role):
                ui.label(name).classes('name font-bold')
                for word, number in words:
                    bar = f'linear-gradient(to right, rgb(37 99 235 / 25%) {max(number, 0):.1%}, transparent 0)'
                    with ui.row().classes('w-full justify-between no-wrap cursor-pointer px-1') as row:
                        ui.label(word).classes('word')
                        ui.label(f'{number:.4f}')
                    row.style(f'background: {bar}').on('click', partial(on_click, word))


def _heading(text: str) -> None:
    ui.label(text).classes('text-lg mt-2')


def _note(text: str) -> None:
    if text:
        ui.label(text).classes('note text-orange-800')


def _value(key: str, value: float | None) -> Any:
    """Returns the value of a field, as an int if its minimum is one. Raises BadInput if a required field is empty."""
    label, initial, minimum, _ = FIELDS[key]
    require(value is not None or initial is None, label, value, 'give a number')
    return int(value) if value is not None and isinstance(minimum, int) else value
