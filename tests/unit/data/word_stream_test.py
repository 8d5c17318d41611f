"""Tests streams of words that are stored as type numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nplm_jax.data.word_stream import TypeNumbers, WordStream

WORDS = st.lists(st.sampled_from('a b c d e f'.split()))


@given(WORDS)
def test_a_stream_has_its_words_and_types_in_the_order_of_first_occurrence(words):
    stream = WordStream.from_words(words)
    assert stream.words() == words
    assert list(stream.types) == list(dict.fromkeys(words))
    assert stream.type_ids_L.dtype == np.int32


@given(st.lists(WORDS))
def test_renumbered_chunks_are_the_stream_of_all_words(chunks):
    numbers = TypeNumbers()
    streams = map(WordStream.from_words, chunks)
    ids = [np.zeros(0, np.int32), *(numbers.number(types)[type_ids_L] for types, type_ids_L in streams)]
    whole = WordStream.from_words(word for chunk in chunks for word in chunk)
    assert list(numbers) == list(whole.types)
    np.testing.assert_array_equal(np.concatenate(ids), whole.type_ids_L)


@given(WORDS)
def test_types_are_replaced_by_one_word_or_two(words):
    parts = {'a': ['x'], 'b': ['x', 'y'], 'c': ['c'], 'd': ['y', 'x'], 'e': ['a'], 'f': ['f']}
    stream = WordStream.from_words(words)
    replaced = stream.replace_types([parts[word] for word in stream.types])
    expected = [part for word in words for part in parts[word]]
    assert replaced.words() == expected
    assert list(replaced.types) == list(dict.fromkeys(expected))
