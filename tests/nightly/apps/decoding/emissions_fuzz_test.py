"""Tests that damaged emission files are either read or rejected with a one-line error."""

import argparse
import io

import numpy as np
import pytest

from nplm_jax.apps.decoding import decode
from tests.nightly.fuzz import search
from tests.nightly.fuzz.damage import Reader


def read(folder, data):
    def again(name):
        return decode.read_emissions(argparse.Namespace(emissions=str(folder / name)), 4)

    (folder / 'emissions.npz').write_bytes(data)
    arrays = again('emissions.npz')
    np.savez(folder / 'written.npz', **arrays)
    written = again('written.npz')
    assert written.keys() == arrays.keys() and all(
        np.allclose(written[name], arrays[name], rtol=1e-9)
        for name in arrays  # normalized twice
    )


def emissions(save):
    arrays = {f'utterance-{i}': np.log(np.random.default_rng(i).dirichlet(np.ones(4), 20 + i)) for i in range(3)}
    save(file := io.BytesIO(), **arrays, single=arrays['utterance-0'].astype(np.float32))
    return file.getvalue()


READER = Reader('emissions.npz', [emissions(np.savez), emissions(np.savez_compressed)], read)


def test_a_few_damaged_files():
    search.search_few(READER, READER.cases[0])


@pytest.mark.nightly
def test_many_damaged_files():
    search.search_many(READER, READER.cases[1])
