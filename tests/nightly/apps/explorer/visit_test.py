"""A visit without a browser: clicks as the page's script sends them, and a page while the explorer is busy."""

import asyncio
import sys
from unittest import mock

import pytest

from nplm_jax.runs import command_models as loaded_models

pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')

from nicegui import Client, ui
from nicegui.testing.user_simulation import user_simulation

from nplm_jax.apps.explorer import batching, page, parts, server

pytestmark = [
    pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning'),
]


@pytest.fixture(scope='module')
def models(folders):
    return loaded_models.load_models([str(folders / 'network'), str(folders / 'counts')])


def visit(models, act, query='text=i+love'):
    """Opens the page and lets a visitor act."""

    async def run():
        async with user_simulation() as user:
            with mock.patch.object(server.ui, 'run'), mock.patch.object(server, 'app'):
                server.serve(models, '', '127.0.0.1', 8080, False)
            await user.open(f'/?{query}')
            await act(user)

    with mock.patch.dict(sys.modules):  # at its end the simulation removes the modules with a page, and their packages
        asyncio.run(run())


def elements(user, kind):
    return [x for x in user.current_layout.client.elements.values() if isinstance(x, kind)]


def reading(user):
    """The words of the text that the page shows."""
    [shown] = elements(user, parts._Reading)
    return [word['text'] for word in shown.props['rows'][0]['words']]


def next_words(user, index):
    return [row['word'] for row in elements(user, parts._WordCard)[index].props['rows']]


async def click(element, place):
    """Sends what the browser sends for a click."""
    [listener] = element._event_listeners.values()
    element._handle_event({'listener_id': listener.id, 'args': place})


async def type_text(user, text):
    [field] = elements(user, ui.textarea)
    with user:
        field.set_value(text)


async def until(is_so):
    """Waits until the page is so."""
    for _ in range(200):
        if is_so():
            return
        await asyncio.sleep(0.05)
    pytest.fail('the page has not changed')


def test_a_click_appends_the_word_of_its_row(models):
    async def act(user):
        second = next_words(user, 0)[1]
        await click(elements(user, parts._WordCard)[0], 1)
        await until(lambda: reading(user) == ['i', 'love', second])

    visit(models, act)


async def press(user, key):
    """Sends what the browser sends for a key."""
    [keyboard] = elements(user, ui.keyboard)
    [listener] = keyboard._event_listeners.values()
    modifiers = dict.fromkeys(('altKey', 'ctrlKey', 'metaKey', 'shiftKey', 'repeat'), False)
    args = {'action': 'keydown', 'key': key, 'code': f'Digit{key}', 'location': 0, **modifiers}
    keyboard._handle_event({'listener_id': listener.id, 'args': args})


def test_a_digit_key_does_nothing_until_the_list_is_that_of_the_present_text(models):
    async def act(user):
        second = next_words(user, 0)[1]
        await press(user, '2')
        await press(user, '1')  # at once: the list is still that of the old text
        await until(lambda: reading(user)[2:])
        await asyncio.sleep(0.5)
        assert reading(user) == ['i', 'love', second]
        [framed] = [card for card in elements(user, parts._WordCard) if 'active' in card.classes]
        first = framed.props['rows'][0]['word']
        await press(user, '1')
        await until(lambda: reading(user) == ['i', 'love', second, first])

    visit(models, act)


def test_a_click_on_a_word_explains_it_and_a_place_that_no_word_has_is_ignored(models):
    async def act(user):
        [shown] = elements(user, parts._Reading)
        for place in (0, 3, -1, 1.0, '1', [1], None):
            await click(shown, place)
        await user.should_not_see('Word ')
        await click(shown, 2)
        await user.should_see('Word 2, “love”')

    visit(models, act)


def test_while_the_explorer_is_busy_the_page_says_so_and_keeps_its_content(models):
    async def act(user):
        expected = next_words(user, 0)
        for reason, messages in ((batching.Superseded, []), (batching.Busy, [page.BUSY])):
            with mock.patch.object(batching.Batcher, '__call__', side_effect=reason):
                await type_text(user, f'i hate {reason}')
                await asyncio.sleep(0.1)
            assert user.notify.messages == messages
            assert reading(user) == ['i', 'love'] and next_words(user, 0) == expected
        await type_text(user, 'i hate dog')
        await until(lambda: reading(user) == ['i', 'hate', 'dog'] and next_words(user, 0) != expected)

    visit(models, act)


def test_a_new_page_is_refused_while_the_explorer_is_busy(models):
    async def act(user):
        with mock.patch.object(batching.Batcher, '__call__', side_effect=batching.Busy):
            pages = len(Client.instances)
            for _ in range(3):
                answer = await user.http_client.get('/')
                assert (answer.status_code, answer.text) == (503, f'{page.BUSY}\n')
            assert len(Client.instances) == pages  # who is refused is no visitor

    visit(models, act)
