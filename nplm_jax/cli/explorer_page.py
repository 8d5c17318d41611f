"""The page: NiceGUI elements that show what view.py computes. Each visitor has a text of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from nicegui import app, run, ui

from nplm_jax.cli import explorer_view
from nplm_jax.cli.trained import Trained
from nplm_jax.data import tokenization
from nplm_jax.inference.generation import Choice
from nplm_jax.utils.errors import BadInput, require

LAST = 60  # words of a long text that are shown coloured
STRONGEST = 16  # bits of surprise that get the full colour
GRID = 'grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr))'
# What writing on asks for: label, value at first, least, most. What has no value at first may be left empty.
FIELDS = {
    'words': ('words', 20, 1, 500),
    'samples': ('samples', 3, 1, 50),
    'seed': ('seed', 1, 0, 2**31 - 1),
    'temperature': ('temperature', 1.0, 0.05, 10),
    'top_k': ('top k', None, 1, None),
    'top_p': ('top p', None, 0.01, 1),
}


def serve(models: Trained, kind: str, host: str, port: int, browser: bool) -> None:
    """Answers until Ctrl-C. kind: how text is cut, as in `tokens.typed`."""
    ui.page('/')(partial(build, models, kind))
    app.on_startup(lambda: print(f'http://{host}:{port} shows {", ".join(models.names)}; Ctrl-C ends it', flush=True))
    title = 'nplm-jax explorer'
    with contextlib.suppress(KeyboardInterrupt):
        ui.run(host=host, port=port, title=title, show=browser, reload=False, show_welcome_message=False)


def build(models: Trained, kind: str) -> None:
    """Lays out the page of one visitor."""

    def tokenize_prompt() -> list[str]:
        return tokenization.tokenize_prompt(text.value or '', models.settings[0].corpus, models.vocabulary.ids, kind)

    def look_at(word: str) -> None:
        about.set_value(word)

    def go_on(word: str) -> None:
        look_at(word)
        text.set_value(f'{text.value or ""} {word}'.strip())

    def drop() -> None:
        text.set_value(' '.join((text.value or '').split()[:-1]))

    @ui.refreshable
    def predicted() -> None:
        words = tokenize_prompt()
        _note(models.unknown(words))
        predictions = explorer_view.predict(models, words, int(count.value))
        _surprises(words, predictions, look_at)
        _heading('What may come next: click a word to go on with it')
        _cards('next', [(p.name, p.following) for p in predictions], go_on)

    @ui.refreshable
    def near() -> None:
        word = (about.value or '').strip()
        _note(models.unknown([word] if word else []))
        _cards('neighbours', explorer_view.neighbours(models, word, int(count.value)), look_at)

    async def write() -> None:
        written.clear()
        problem = ''
        with written:
            ui.spinner()
        try:
            drawn = {key: _value(key, field.value) for key, field in fields.items()}
            choice = Choice(*(drawn[key] for key in ('temperature', 'top_k', 'top_p')))
            asked = [drawn[key] for key in ('words', 'samples')]
            lines = await run.io_bound(
                explorer_view.write_on, models, source.value, tokenize_prompt(), *asked, choice, drawn['seed']
            )
        except BadInput as error:
            lines, problem = [], str(error)
        if lines is None or written.is_deleted:  # the page was closed meanwhile
            return
        written.clear()
        with written:
            _note(problem)
            for line in lines:
                ui.label(f'… {line}').classes('written')

    with ui.row().classes('w-full items-end'):
        text = (
            ui.input('a beginning', on_change=predicted.refresh)
            .classes('grow')
            .props('clearable autofocus debounce=300')
        )
        ui.button('drop the last word', on_click=drop).props('flat no-caps')
        ui.label('words listed')
        count = ui.slider(min=1, max=50, value=10).props('label').style('width: 9rem')
        count.on_value_change(lambda: (predicted.refresh(), near.refresh()))
    predicted()
    _heading("Neighbours by the networks' features: type a word or click one")
    about = ui.input('a word', on_change=near.refresh).props('clearable debounce=300')
    near()
    _heading('Let a model write on')
    with ui.row().classes('items-end'):
        names = dict(enumerate(name for name, _ in models.named()))
        source = ui.select(names, value=0, label='model').style('min-width: 12rem')
        fields = {
            key: ui.number(label, value=value, min=least, max=most).style('width: 7rem')
            for key, (label, value, least, most) in FIELDS.items()
        }
        ui.button('write', on_click=write).props('no-caps')
    written = ui.column().classes('gap-1')


def _surprises(
    words: Sequence[str], predictions: Sequence[explorer_view.Prediction], look_at: Callable[[str], None]
) -> None:
    """The text once a model, each word in the colour of its surprise."""
    if not words:
        return
    _heading('How much each word surprised: the stronger the colour the less likely the word was')
    with ui.element('div').classes('w-full grid items-center gap-x-4 gap-y-1').style('grid-template-columns: auto 1fr'):
        for prediction in predictions:
            ui.label(f'{prediction.name}: perplexity {prediction.perplexity:,.1f}').classes('perplexity')
            with ui.row().classes('gap-1'):
                for word, bits in list(zip(words, prediction.bits_T.tolist()))[-LAST:]:
                    share = min(bits / STRONGEST, 1)
                    label = ui.label(word).classes('surprise cursor-pointer rounded px-1').tooltip(f'{bits:.1f} bits')
                    label.style(f'background: rgb(234 88 12 / {share:.0%})').on('click', partial(look_at, word))


def _cards(role: str, columns: Sequence[tuple[str, explorer_view.Weighed]], clicked: Callable[[str], None]) -> None:
    """A card a model: words to click on, each before a bar as long as its number."""
    with ui.element('div').classes('w-full grid gap-4').style(GRID):
        for name, weighed in columns:
            with ui.card().classes('gap-0 p-2').classes(role):
                ui.label(name).classes('name font-bold')
                for word, number in weighed:
                    bar = f'linear-gradient(to right, rgb(37 99 235 / 25%) {max(number, 0):.1%}, transparent 0)'
                    with ui.row().classes('w-full justify-between no-wrap cursor-pointer px-1') as row:
                        ui.label(word).classes('word')
                        ui.label(f'{number:.4f}')
                    row.style(f'background: {bar}').on('click', partial(clicked, word))


def _heading(text: str) -> None:
    ui.label(text).classes('text-lg mt-2')


def _note(text: str) -> None:
    if text:
        ui.label(text).classes('note text-orange-800')


def _value(key: str, value: float | None) -> float | int | None:
    """What a field holds, a whole number where its least is. Raises: BadInput when it must hold one and does not."""
    label, first, least, _ = FIELDS[key]
    require(value is not None or first is None, label, value, 'give a number')
    return int(value) if value is not None and isinstance(least, int) else value
