"""No reader ends in anything but a result or BadInput, whatever the file: a little by default, much with -m fuzz."""

import json
import pathlib

import pytest

from tests.fuzz import search
from tests.fuzz.readers import READERS

each = pytest.mark.parametrize('reader', READERS, ids=lambda reader: reader.name)


@each
def test_a_few_damaged_files(reader):
    search.search_few(reader, reader.cases[0])


@pytest.mark.fuzz
@each
def test_many_damaged_files(reader):
    search.search_many(reader, reader.cases[1])


def test_the_table_is_what_was_found():
    found = json.loads(search.RECORD.read_text())
    assert [f['reader'] for f in found] == [reader.name for reader in READERS]
    assert search.make_table(found) in (pathlib.Path(__file__).parent / 'README.md').read_text()
