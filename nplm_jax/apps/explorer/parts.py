"""Creates the stateless NiceGUI elements that show data on the explorer's page."""

import functools
import pathlib
import types
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

from nplm_jax.apps.explorer.view import Explanation, Prediction, WeightedWords, describe_probability
from nplm_jax.data.stream import RARE
from nplm_jax.utils.packages import OptionalPackage, require_package

ui = OptionalPackage('nicegui.ui', 'explore')
WEB = pathlib.Path(__file__).with_name('web')  # the web files of both pages
MAX_COLOURED = 60  # maximum number of words shown; only the last words of a longer text are shown
MAX_BITS = 16  # surprisal of the strongest colour (bits)
DIGIT_KEYS = '1234567890'  # keys that append the first ten words of a list
_TICKS = {bits: f'1 in {2**bits:,}' if bits else 'certain' for bits in range(0, MAX_BITS + 1, MAX_BITS // 4)}
_LEGEND = (
    '<div class="scale"></div><div class="ticks quiet">'
    + ''.join(f'<div title="{bits} bits">{chance}</div>' for bits, chance in _TICKS.items())
    + '</div>'
)


@functools.cache
def _component(file: str) -> Any:
    """Returns the class of NiceGUI elements for a Vue component."""
    base = require_package('nicegui.element', 'explore').Element
    return types.new_class(file.partition('.')[0], (base,), {'component': WEB / file})


def rows(file: str, shown: Sequence[Mapping[str, Any]], places: range, on_click: Callable[[int], None]) -> Any:
    """Shows rows of clickable words as a single element, which the browser lays out.

    If there were one element per word, creating the elements would take ten times as long as running the models.

    Args:
        file: The Vue component, which emits `choose` with the position of a clicked word.
        shown: The data of the rows.
        places: The positions of the words.
        on_click: A function that is called with the position of a clicked word.
    """

    def choose(event: Any) -> None:
        if isinstance(event.args, int) and event.args in places:  # reject values sent by other scripts
            on_click(event.args)

    element = _component(file)()
    element.props['rows'] = tuple(shown)  # a tuple, because NiceGUI would watch each item of a list
    return element.on('choose', choose)


def panel(title: str, hint: str = '') -> Any:
    """Returns an empty framed section of the page."""
    frame = ui.element('section').classes('panel')
    with frame, ui.element('div'):
        tagged('h2', title)
        if hint:
            ui.label(hint).classes('quiet text-sm')
    return frame


def tagged(tag: str, text: str) -> Any:
    """Shows text in an HTML element, such as h1 or kbd."""
    with ui.element(tag) as element:
        ui.label(text)
    return element


def note(text: str) -> None:
    """Shows a note to the visitor, if the text is not empty."""
    if text:
        ui.label(text).classes('note').props('role=status')


def button(on_click: Callable[[], object], classes: str = '') -> Any:
    """Returns an empty button without the default style."""
    return ui.element('button').props('type=button').classes(f'plain {classes}').on('click', lambda _: on_click())


def refill(container: Any, show: Callable[[], object]) -> None:
    """Replaces the content of a container."""
    container.clear()
    with container:
        show()


def legend(any_unknown: bool) -> None:
    """Shows the colour legend, and explains the stripes if any word is unknown."""
    ui.html(_LEGEND, sanitize=False).classes('legend')
    if any_unknown:
        with ui.element('div').classes('flex items-center gap-2 text-sm'):
            ui.label('word').classes('unknown px-1')
            ui.label(f'not in the vocabulary: read as {RARE}').classes('quiet')


def reading(
    words: Sequence[str],
    unknown: Container[str],
    predictions: Sequence[Prediction],
    selected: int | None,
    on_click: Callable[[int], None],
) -> None:
    """Shows the text once for each model, with words coloured by surprisal and unknown words striped.

    Args:
        words: The text.
        unknown: The words outside the vocabulary.
        predictions: The predictions of each model.
        selected: The position of the explained word, counted from 1.
        on_click: A function that is called with the position of a clicked word, counted from 1.
    """
    first = max(len(words) - MAX_COLOURED, 0)
    shown = []
    for prediction in predictions:
        numbers = zip(words, prediction.bits_T.tolist(), prediction.perplexities_T.tolist())
        coloured = list(enumerate(numbers, start=1))[first:]
        shown.append(
            {
                'name': prediction.name,
                'perplexity': f'perplexity {prediction.perplexity:,.1f}',
                'skipped': f'… {first:,} words' if first else '',
                'words': [
                    _surprise(position, *row, row[0] in unknown, position == selected) for position, row in coloured
                ],
            }
        )
    rows('reading.js', shown, range(1, len(words) + 1), on_click)


def _surprise(
    position: int, word: str, bits: float, perplexity: float, is_unknown: bool, is_selected: bool
) -> dict[str, Any]:
    """Returns the data that the browser shows for a word."""
    scored = f'not in the vocabulary; {RARE}: ' if is_unknown else ''
    chance = describe_probability(2**-bits)
    return {
        'text': word,
        'position': position,
        'classes': 'selected' * is_selected + ' unknown' * is_unknown,
        'bits': f'{min(bits / MAX_BITS, 1):.0%}',
        'tip': f'{scored}{bits:.1f} bits ({chance}); perplexity so far {perplexity:,.1f}',
    }


def explanation_cards(explanations: Sequence[Explanation], num_words: int, on_click: Callable[[str], None]) -> None:
    """Shows what each model expected at one position of the text. A click selects an expected word."""
    with ui.element('div').classes('cards'):
        for name, probability, rank, expected in explanations:
            with ui.element('div').classes('card explanation'):
                ui.label(name).classes('font-medium')
                ui.label(describe_probability(probability)).classes('chance')
                ui.label(f'rank {rank:,} of {num_words:,}').classes('rank quiet text-sm')
                with ui.element('div').classes('flex flex-wrap gap-1 mt-1'):
                    ui.label('expected').classes('quiet text-sm')
                    for word, p in expected:
                        with button(partial(on_click, word), 'pill'):
                            ui.label(word)
                            ui.tooltip(describe_probability(p))


def word_card(
    title: str,
    subtitle: str,
    words: WeightedWords,
    describe: Callable[[float], str],
    on_click: Callable[[str], None],
    classes: str,
    keys: str = '',
    lit: int = -1,
) -> None:
    """Shows a list of clickable words with bars proportional to the number of each word.

    Args:
        title: The title of the list.
        subtitle: The text below the title.
        words: The words, each with a number from 0 to 1.
        describe: A function that formats a number.
        on_click: A function that is called with a clicked word.
        classes: CSS classes of the card.
        keys: The keys that choose the first words.
        lit: The row selected with the arrow keys. -1 if no row is selected.
    """
    shown = [
        {
            'word': word,
            'number': describe(number),
            'share': f'{max(number, 0):.1%}',
            'key': keys[i : i + 1],
            'lit': i == lit,
        }
        for i, (word, number) in enumerate(words)
    ]
    card = rows('word_card.js', shown, range(len(words)), lambda row: on_click(words[row][0])).classes(classes)
    card.props.update(heading=title, subtitle=subtitle)
