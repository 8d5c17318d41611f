"""Tests that every reader returns a result or raises BadInput for any file; `-m ''` runs many more cases."""

import json
import pathlib

import pytest

from tests.nightly.fuzz import search
from tests.nightly.fuzz.folders import make_runs
from tests.nightly.fuzz.folders import search as search_folders
from tests.nightly.fuzz.readers import READERS

each = pytest.mark.parametrize('reader', READERS, ids=lambda reader: reader.name)


@each
def test_a_few_damaged_files(reader):
    search.search_few(reader, reader.cases[0])


@pytest.mark.nightly
@each
def test_many_damaged_files(reader):
    search.search_many(reader, reader.cases[1])


def test_a_damaged_folder_in_every_command(folders):
    """Tries one case per command, with the network and the count-based model that other tests also use."""
    search_folders(1, [folders / 'network', folders / 'counts'])


@pytest.mark.nightly
def test_many_damaged_folders_in_every_command(tmp_path):
    search_folders(40, make_runs(tmp_path))


def test_the_table_is_what_was_found():
    rows = json.loads(search.RECORD.read_text())
    assert [row['reader'] for row in rows] == [reader.name for reader in READERS]
    assert search.make_table(rows) in (pathlib.Path(__file__).parent / 'README.md').read_text()
