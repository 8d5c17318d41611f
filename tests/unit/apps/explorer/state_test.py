"""Tests that a link restores the page and that an invalid link is reported."""

import urllib.parse

import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from nplm_jax.apps.explorer.state import MAX_COUNT, PageState
from nplm_jax.utils.errors import BadInput


def restore(query, num_models=3):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    return PageState.from_query(dict(pairs), num_models)


words = st.text(st.characters(exclude_categories=['Cs'])).map(str.strip)
states = st.builds(
    PageState,
    text=words.map(lambda text: f'one two {text}'.strip()),
    word=words,
    position=st.none() | st.integers(1, 2),
    count=st.integers(1, MAX_COUNT),
    model=st.integers(0, 3),
    source=st.integers(0, 3),
    weights=st.none() | st.tuples(*[st.integers(1, 100).map(lambda x: x / 100)] * 3),
    words=st.integers(1, 500),
    samples=st.integers(1, 50),
    seed=st.integers(0, 2**31 - 1),
    temperature=st.floats(0.05, 10),
    top_k=st.none() | st.integers(1, 1000),
    top_p=st.none() | st.floats(0.01, 1),
)


@given(states)
def test_a_link_restores_every_choice(state):
    assert restore(state.to_query()) == state


def test_a_new_page_has_a_bare_address_and_a_link_says_only_what_was_chosen():
    assert PageState().to_query() == '' and restore('') == PageState()
    state = PageState(text='the old', weights=(0.7, 0.3), temperature=0.5)
    assert state.to_query() == 'text=the+old&weights=0.7,0.3&temperature=0.5'


@pytest.mark.parametrize(
    'query',
    [
        *('count=0', 'count=ten', 'model=4', 'position=0', 'position=', 'temperature=0', 'temperature=', 'samples=1e3'),
        *('weights=1,2', 'weights=0,0,0', 'weights=1,1,-1', 'weights=1,1,nan', 'weights=1,1,', 'top_k=0', 'top_p=inf'),
        *('text=' + 'a' * 5001, 'word=' + 'a' * 201),
    ],
)
def test_an_impossible_link_is_named(query):
    with refuses(query.partition('=')[0]):
        restore(query)


@pytest.mark.parametrize('value', [0, 501, -1, 10**400, 2.5, float('nan'), float('inf'), 'x', [3], {}, None])
def test_a_number_that_no_field_sends_is_refused_and_the_former_one_stays(value):
    """A page's script can send any value."""
    state = PageState(words=7)
    with pytest.raises(BadInput):
        state.words = value
    assert state.words == 7
    state.words = 3.0
    assert state.words == 3 and type(state.words) is int


def test_one_model_needs_no_weights():
    assert restore('weights=1', num_models=1).weights is None
