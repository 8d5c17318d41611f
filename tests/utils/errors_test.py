"""The exception that a user's mistake raises."""

import pathlib
import pickle

import pytest

from nplm_jax.utils.errors import BadInput, require, status


@pytest.mark.parametrize('value', [3, 'x', None, ..., ('a', 1.5)])
def test_it_keeps_its_fields_and_its_type_between_processes(value):
    error = BadInput('model.h', 'must be 0 or more', value=value)

    again = pickle.loads(pickle.dumps(error))

    assert (again.key, again.value, again.problem) == (error.key, error.value, error.problem)
    assert again.value is error.value or again.value == error.value
    assert str(again) == str(error)


def test_its_message_is_one_line_with_the_key_the_value_and_the_problem():
    assert str(BadInput('model.h', 'must be 0 or more', value=-1)) == 'model.h=-1: must be 0 or more'
    assert str(BadInput('--storage', 'needs --search')) == '--storage: needs --search'
    assert str(BadInput(pathlib.Path('a/b'), 'damaged')) == 'a/b: damaged'
    assert str(BadInput('--workdir', 'taken', value=pathlib.Path('a/b'))) == "--workdir='a/b': taken"


def test_unprintable_characters_are_escaped_and_long_values_shortened_only_in_the_message():
    value = 'a\nb\x1b' + 'c' * 5000

    error = BadInput('key', 'bad\nvalue', value=value)

    assert error.value == value and error.problem == 'bad\nvalue'
    assert '\n' not in str(error) and '\x1b' not in str(error) and len(str(error)) < 1100


def test_require_raises_the_fields_it_is_given():
    require(True, 'key', 1, 'must be 2')
    with pytest.raises(BadInput) as caught:
        require(False, 'key', 1, 'must be 2')
    assert (caught.value.key, caught.value.value, caught.value.problem) == ('key', 1, 'must be 2')


@pytest.mark.parametrize(
    'text, expected',
    [('RESOURCE_EXHAUSTED: Out of memory', 'RESOURCE_EXHAUSTED'), ('out of luck: no', ''), ('', ''), ('ABORTED', '')],
)
def test_the_status_of_a_library_error_is_the_first_word_of_its_text(text, expected):
    assert status(RuntimeError(text)) == expected
