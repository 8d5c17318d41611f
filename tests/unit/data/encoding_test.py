"""Tests the identity of a dataset."""

import dataclasses
import hashlib

import numpy as np

from nplm_jax.data import encoding
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary

WORDS = Vocabulary(('<rare>', 'a', 'é'), (0, 3, 1))
DATA = Dataset(Span(0, 2), Span(2, 3), Span(3, 4), np.array([1, 2, 1, 0], np.int32), WORDS)


def test_the_identity_of_a_text_is_a_digest_of_bytes_that_anybody_can_write():
    ids = b'\1\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0'
    text = 'train 0 2\nvalid 2 3\ntest 3 4\n6 <rare>\n1 a\n2 é\n'
    assert encoding.identity(DATA) == hashlib.sha256(b'nplm text 1\n' + ids + text.encode()).hexdigest()


def test_another_id_split_or_word_is_another_text():
    def changed(**values):
        return encoding.identity(dataclasses.replace(DATA, **values))

    others = [
        changed(tokens_T=np.array([1, 2, 1, 1], np.int32)),
        changed(tokens_T=np.array([1, 2, 1, 0, 0], np.int32)),
        changed(valid=Span(1, 3)),
        changed(vocabulary=Vocabulary(('<rare>', 'a', 'e'), (0, 3, 1))),
        changed(vocabulary=Vocabulary(('<rare>', 'a\n2 é'), (0, 3))),
    ]
    assert len({encoding.identity(DATA), *others}) == 6
    assert changed(tokens_T=DATA.tokens_T.astype('>i4')) == encoding.identity(DATA)
