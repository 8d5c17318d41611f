"""Tests visits to the explorer without a browser, by sending clicks in the same form as the page's script."""

import asyncio
import sys
from unittest import mock

import pytest

from nplm_jax.runs import command_models as loaded_models

pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')

from nicegui import ui
from nicegui.testing.user_simulation import user_simulation

from nplm_jax.apps.explorer import server

pytestmark = [
    pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning'),
]


@pytest.fixture(scope='module')
def models(folders):
    return loaded_models.load_models([str(folders / 'network'), str(folders / 'counts')])


def visit(models, act, query='text=i+love'):
    """Opens the page and performs the actions of a visitor."""

    async def run():
        async with user_simulation() as user:
            with mock.patch.object(ui, 'run_with'):
                server.page_app(models, '')
            await user.open(f'/?{query}')
            await act(user)

    with mock.patch.dict(sys.modules):  # the simulation finally removes modules with pages
        asyncio.run(run())


def elements(user, kind):
    """Returns the elements of a class, or of the Vue component with this name."""
    every = user.current_layout.client.elements.values()
    return [x for x in every if (type(x).__name__ == kind if isinstance(kind, str) else isinstance(x, kind))]


def reading(user):
    """Returns the words of the text shown on the page."""
    [shown] = elements(user, 'reading')
    return [word['text'] for word in shown.props['rows'][0]['words']]


def next_words(user, index):
    return [row['word'] for row in elements(user, 'word_card')[index].props['rows']]


async def click(element, place):
    """Sends the messages that a browser sends for a click."""
    [listener] = element._event_listeners.values()
    element._handle_event({'listener_id': listener.id, 'args': place})


async def type_text(user, text):
    [field] = elements(user, ui.textarea)
    with user:
        field.set_value(text)


async def until(is_so):
    """Waits until the condition holds for the page."""
    for _ in range(200):
        if is_so():
            return
        await asyncio.sleep(0.05)
    pytest.fail('the page has not changed')


def test_a_click_appends_the_word_of_its_row(models):
    async def act(user):
        second = next_words(user, 0)[1]
        await click(elements(user, 'word_card')[0], 1)
        await until(lambda: reading(user) == ['i', 'love', second])

    visit(models, act)


async def press(user, key):
    """Sends the messages that a browser sends for a key."""
    [keyboard] = elements(user, ui.keyboard)
    [listener] = keyboard._event_listeners.values()
    modifiers = dict.fromkeys(('altKey', 'ctrlKey', 'metaKey', 'shiftKey', 'repeat'), False)
    args = {'action': 'keydown', 'key': key, 'code': f'Digit{key}', 'location': 0, **modifiers}
    keyboard._handle_event({'listener_id': listener.id, 'args': args})


def test_a_digit_key_does_nothing_until_the_list_is_that_of_the_present_text(models):
    async def act(user):
        second = next_words(user, 0)[1]
        await press(user, '2')
        await press(user, '1')  # immediately, while the list still belongs to the old text
        await until(lambda: reading(user)[2:])
        await asyncio.sleep(0.5)
        assert reading(user) == ['i', 'love', second]
        [framed] = [card for card in elements(user, 'word_card') if 'active' in card.classes]
        first = framed.props['rows'][0]['word']
        await press(user, '1')
        await until(lambda: reading(user) == ['i', 'love', second, first])

    visit(models, act)


def test_a_click_on_a_word_explains_it_and_a_place_that_no_word_has_is_ignored(models):
    async def act(user):
        [shown] = elements(user, 'reading')
        for place in (0, 3, -1, 1.0, '1', [1], None):
            await click(shown, place)
        await user.should_not_see('Word ')
        await click(shown, 2)
        await user.should_see('Word 2, “love”')

    visit(models, act)


def test_a_text_is_shown_once_it_is_scored_unless_it_has_changed_again(models):
    async def act(user):
        for text in ('i hate', 'i hate dog', 'i hate dog and'):
            await type_text(user, text)
        await until(lambda: reading(user) == ['i', 'hate', 'dog', 'and'])
        await asyncio.sleep(0.5)
        assert reading(user) == ['i', 'hate', 'dog', 'and']

    visit(models, act)


def test_an_impossible_number_of_a_field_is_named_and_not_kept(models):
    async def act(user):
        numbers = elements(user, ui.number)
        with user:
            numbers[0].set_value(0)
        assert numbers[0].error
        with user:
            numbers[0].set_value(3)
        assert not numbers[0].error

    visit(models, act)
