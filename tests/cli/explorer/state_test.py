"""A link restores the page, and an impossible link is named."""

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nplm_jax.cli.explorer.state import FIELDS, MAX_COUNT, PageState
from nplm_jax.utils.errors import BadInput


def restore(query, num_models=3):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    return PageState.from_query(dict(pairs), num_models)


def numbers(field):
    maximum = field.maximum or 1000
    whole = isinstance(field.minimum, int)
    values = st.integers(field.minimum, maximum) if whole else st.floats(field.minimum, maximum)
    return values if field.initial is not None else st.none() | values


words = st.text(st.characters(exclude_categories=['Cs'])).map(str.strip)
states = st.builds(
    PageState,
    text=words.map(lambda text: f'one two {text}'.strip()),
    word=words,
    position=st.none() | st.integers(0, 1),
    count=st.integers(1, MAX_COUNT),
    model=st.integers(0, 3),
    source=st.integers(0, 3),
    weights=st.none() | st.tuples(*[st.integers(1, 100).map(lambda x: x / 100)] * 3),
    numbers=st.fixed_dictionaries({key: numbers(field) for key, field in FIELDS.items()}),
)


@given(states)
def test_a_link_restores_every_choice(state):
    assert restore(state.to_query()) == state


def test_a_new_page_has_a_bare_address_and_a_link_says_only_what_was_chosen():
    assert PageState().to_query() == '' and restore('') == PageState()
    state = PageState('the old', weights=(0.7, 0.3))
    state.numbers['temperature'] = 0.5
    assert state.to_query() == 'text=the+old&weights=0.7,0.3&temperature=0.5'


@pytest.mark.parametrize(
    'query,message',
    [
        ('list=0', "list='0': must be 1 to 50"),
        ('list=ten', "list='ten': must be a whole number"),
        ('model=4', "model='4': must be 0 to 3"),
        ('text=one&at=9', "at='9': must be 1 to 4"),
        ('weights=1,2', "weights='1,2': the page has 3 models"),
        ('weights=0,0,0', "weights='0,0,0': must be 0 or more"),
        ('weights=1,1,-1', "weights='1,1,-1': must be 0 or more"),
        ('weights=1,1,nan', "weights='nan': must be a finite number"),
        ('weights=1,1,', "weights='': must be a number"),
        ('temperature=0', "temperature='0': must be at least 0.05 and at most 10"),
        ('samples=1e3', "samples='1e3': must be a whole number"),
        ('top_k=0', "top k='0': must be at least 1"),
        ('text=' + 'a' * 5001, 'text: 5,001 characters; 5,000 at most'),
        ('word=' + 'a' * 201, 'word: 201 characters; 200 at most'),
    ],
)
def test_an_impossible_link_is_named(query, message):
    with pytest.raises(BadInput) as error:
        restore(query)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize('value', [0, 501, -1, 10**400, 2.5, float('nan'), float('inf'), True, '3', [3], {}, None])
def test_a_number_that_no_field_sends_is_refused(value):
    """A page's script can send anything."""
    with pytest.raises(BadInput, match='^words='):
        FIELDS['words'].check(value)
    assert FIELDS['words'].check(3.0) == 3 and type(FIELDS['words'].check(3.0)) is int


def test_one_model_needs_no_weights():
    assert restore('weights=1', num_models=1).weights is None
