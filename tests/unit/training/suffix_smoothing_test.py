"""Tests suffix smoothing of the row of C that begins each line."""

import types

import numpy as np

from nplm_jax.outputs.output_layer import EMBEDDING, Tables
from nplm_jax.training import suffix_smoothing


def test_the_symbol_that_begins_each_line_keeps_its_row_of_features():
    vocabulary = types.SimpleNamespace(words=('<rare>', '<p>', 'walking', 'talking'))
    data = types.SimpleNamespace(vocabulary=vocabulary, train_words=np.array([1, 2, 3] * 200, np.int32))
    rows = np.array([[9.0], [1.0], [2.0], [3.0]], np.float32)

    def smooth(line_end):
        network = types.SimpleNamespace(line_end=line_end, tables=Tables(words=('U_VxK',)))
        return suffix_smoothing.smooth(network, {EMBEDDING: rows, 'U_VxK': rows}, data, 1.0)

    assert smooth(None)[EMBEDDING][0, 0] < 3  # <rare> does not occur
    assert smooth(1)[EMBEDDING][0, 0] > 8.9 and smooth(1)['U_VxK'][0, 0] < 3
