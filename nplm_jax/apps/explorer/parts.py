"""The parts of the explorer's page: NiceGUI elements that show data and know nothing of a visitor's state."""

from collections.abc import Callable, Container, Sequence
from functools import partial

from nicegui import ui

from nplm_jax.apps.explorer.view import Explanation, Prediction, WeightedWords, describe_probability
from nplm_jax.data.vocabulary import RARE

MAX_COLOURED = 60  # the last words of a long text
MAX_BITS = 16  # of surprisal, for the full colour
DIGIT_KEYS = '1234567890'  # they append the first ten words of a list


def panel(title: str, hint: str = '') -> ui.element:
    """Returns a framed part of the page, to be filled."""
    frame = ui.element('section').classes('panel')
    with frame, ui.element('div'):
        tagged('h2', title)
        if hint:
            ui.label(hint).classes('quiet text-sm')
    return frame


def tagged(tag: str, text: str) -> ui.element:
    """Shows a text in an HTML element, such as h1 or kbd."""
    with ui.element(tag) as element:
        ui.label(text)
    return element


def note(text: str) -> None:
    """Shows what a visitor has to know, if there is anything."""
    if text:
        ui.label(text).classes('note').props('role=status')


def button(on_click: Callable[[], object], classes: str = '') -> ui.element:
    """Returns a button without a button's looks, to be filled."""
    return ui.element('button').props('type=button').classes(f'plain {classes}').on('click', lambda _: on_click())


def legend(any_unknown: bool) -> None:
    """Shows what the colour of a word says, and its stripes if any word is unknown."""
    with ui.element('div').classes('legend'):
        ui.element('div').classes('scale')
        with ui.element('div').classes('ticks quiet'):
            for bits in range(0, MAX_BITS + 1, MAX_BITS // 4):
                ui.label('certain' if bits == 0 else f'1 in {2**bits:,}').tooltip(f'{bits} bits')
    if any_unknown:
        with ui.element('div').classes('flex items-center gap-2 text-sm'):
            ui.label('word').classes('unknown px-1')
            ui.label(f'not in the vocabulary: all such words are read as {RARE}').classes('quiet')


def reading(
    words: Sequence[str],
    unknown: Container[str],
    predictions: Sequence[Prediction],
    selected: int | None,
    on_click: Callable[[int], None],
) -> None:
    """Shows the text once for each model, each word coloured by its surprisal; an unknown word is striped instead.

    Args:
        words: The text.
        unknown: The words of it that are not in the vocabulary.
        predictions: What each model says of it.
        selected: The place of the word that is explained, from 1.
        on_click: Called with the place of a word that was clicked, from 1.
    """
    first = max(len(words) - MAX_COLOURED, 0)
    with ui.element('div').classes('reading'):
        for prediction in predictions:
            with ui.element('div').classes('perplexity'):
                ui.label(prediction.name).classes('font-medium')
                ui.label(f'perplexity {prediction.perplexity:,.1f}').classes('quiet text-sm')
            with ui.element('div').classes('text'):
                if first:
                    ui.label(f'… {first:,} words').classes('quiet')
                rows = zip(words, prediction.bits_T.tolist(), prediction.perplexities_T.tolist())
                for position, (word, bits, perplexity) in list(enumerate(rows, start=1))[first:]:
                    classes = 'surprise' + ' selected' * (position == selected) + ' unknown' * (word in unknown)
                    with button(partial(on_click, position), classes).style(f'--bits: {min(bits / MAX_BITS, 1):.0%}'):
                        ui.label(word)
                        scored = f'not in the vocabulary; {RARE}: ' if word in unknown else ''
                        chance = describe_probability(2**-bits)
                        ui.tooltip(f'{scored}{bits:.1f} bits ({chance}); perplexity up to here {perplexity:,.1f}')


def explanation_cards(explanations: Sequence[Explanation], num_words: int, on_click: Callable[[str], None]) -> None:
    """Shows what each model expected at one place of the text; a click selects an expected word."""
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
    """Shows a list of words to click, each before a bar as long as its number.

    Args:
        title: What the list belongs to.
        subtitle: What else is to be said of it.
        words: The words with their numbers, 0 to 1.
        describe: Writes a number.
        on_click: Called with a word that was clicked.
        classes: CSS classes of the card.
        keys: The keys that stand for the first words.
        lit: The row that the arrow keys have reached, if any.
    """
    with ui.element('div').classes(f'card {classes}'):
        ui.label(title).classes('name font-medium')
        if subtitle:
            ui.label(subtitle).classes('quiet text-sm mb-1')
        for i, (word, number) in enumerate(words):
            with button(partial(on_click, word), 'entry' + ' lit' * (i == lit)).style(f'--share: {max(number, 0):.1%}'):
                if i < len(keys):
                    tagged('kbd', keys[i])
                ui.label(word).classes('word')
                ui.label(describe(number)).classes('number')
