"""Tests the exception for a user's mistakes."""

import pathlib
import pickle
import re

import pytest

from nplm_jax.utils.errors import BadInput, first_few, require, shorten, status


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


@pytest.mark.parametrize(
    'words', [['word'] * 9000, ['w' * 9000], ['w' * 700, 'end'], ['clip=1', 'there,', '1000', 'now;'] * 99]
)
def test_a_text_is_cut_between_words_and_says_how_much_was_left_out(words):
    text = ' '.join(words)
    begin, left_out, end = re.split(r'\[\.\.\. ([\d,]+) characters \.\.\.\]', shorten(text, 300))
    assert text.startswith(begin) and text.endswith(end) and begin and end and len(begin + end) <= 300
    assert len(begin) + int(left_out.replace(',', '')) + len(end) == len(text)
    assert len(words) < 3 or {*begin.split(), *end.split()} <= {*words}
    assert shorten(text, len(text)) == text


def test_a_long_value_leaves_room_for_the_problem_and_a_long_problem_for_the_value():
    assert str(BadInput('key', 'must be 1', value='v' * 5000)).endswith("v': must be 1")
    message = str(BadInput('key', ' '.join(['long'] * 5000), value=12345))
    assert message.startswith('key=12345: long ') and message.endswith(' long') and ' characters ...]' in message
    assert len(str(BadInput('k' * 5000, 'p' * 5000, value='v' * 5000))) < 1200


def test_a_list_in_a_message_has_three_items_and_the_number_of_the_others():
    assert first_few([]) == '' and first_few(['a']) == 'a' and first_few(['a', 'b', 'c']) == 'a; b; c'
    assert first_few([str(i) for i in range(1203)]) == '0; 1; 2; and 1,200 more'


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
