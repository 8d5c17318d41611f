"""Tests WikiText-103 with a synthetic archive, which is checked like the published one and read in chunks."""

import hashlib
import re
import zipfile

import pytest
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from nplm_jax.data import wikitext2, wikitext103
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer

TRAIN = ' \n = Lobster = \n \n A <unk> lobster \u00e9 . \n It = red = here \n \n = = Shell = = \n \n One . \n'
TRAIN += ' \n = A Town = \n \n It is a <unk> . \n'
TEXTS = {'train': TRAIN, 'valid': ' \n = Red = \n \n Red . \n', 'test': ' \n It is red . \n'}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A synthetic archive, the only one that is accepted."""
    path = tmp_path / 'wikitext-103-v1.zip'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as written:
        for split, text in TEXTS.items():
            written.writestr(f'wikitext-103/wiki.{split}.tokens', text)
    sums = {split: hashlib.sha1(text.encode()).hexdigest() for split, text in TEXTS.items()}
    monkeypatch.setattr(wikitext103, 'FILES', sums)
    return path


def unpack(archive):
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(archive.parent)
    return archive.parent / 'wikitext-103'


def test_the_archive_and_its_folder_read_the_same(archive):
    expected = [
        TextChunk(
            ' = Lobster = \n\n A <rare> lobster \u00e9 . \n\n It = red = here \n\n = = Shell = = \n\n One . \n', True
        ),
        TextChunk(' = A Town = \n\n It is a <rare> . \n', True),
    ]
    folder = unpack(archive)
    for path in (archive, folder, folder.parent):
        assert wikitext103.find(str(path)) == (
            [archive] if path == archive else [folder / f'wiki.{s}.tokens' for s in TEXTS]
        )
        assert list(wikitext103.checked_chunks(str(path))) == expected
        assert [list(wikitext103.chunks(str(path), s)) for s in ('valid', 'test')] == [
            [TextChunk(' = Red = \n\n Red . \n', True)],
            [TextChunk(' It is red . \n', True)],
        ]


def check(path):
    return list(wikitext103.checked_chunks(str(path)))


def test_other_bytes_are_refused(archive, tmp_path):
    folder = unpack(archive)
    (folder / 'wiki.valid.tokens').write_text('changed')
    with refuses('corpus.path'):
        check(folder)
    (folder / 'wiki.valid.tokens').unlink()
    with refuses('wikitext-103/wiki.valid.tokens'):
        check(folder)
    (folder / 'wiki.train.tokens').unlink()
    for path in ('', str(folder), str(tmp_path / 'nowhere')):
        with refuses('corpus.path'):
            check(path)


def test_a_damaged_archive_is_one_line(archive):
    data = archive.read_bytes()
    name = len('wikitext-103/wiki.train.tokens')
    stored = data[: 30 + name] + b'\xff' * 9 + data[39 + name :]  # the first file follows its local header
    for damaged in (data[:-1], data[: len(data) // 2], data.replace(b'wiki.train', b'wiki.trein'), stored):
        archive.write_bytes(damaged)
        for read in (check, lambda path: list(wikitext103.chunks(str(path), 'train'))):
            with refuses('wikitext-103-v1.zip'):
                read(archive)
    with zipfile.ZipFile(archive, 'w') as other:
        for split in TEXTS:
            other.writestr(f'wikitext-103/wiki.{split}.tokens', 'other words')
    with refuses('corpus.path'):
        check(archive)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(['\n', ' \n', ' = A = \n', '= B =', '= = C = = \n', ' d \n', '=', 'e', '\r\n'])),
    st.integers(1, 20),
)
def test_chunks_are_the_articles_between_titles(parts, size):
    text = ''.join(parts)
    split = re.split(r'\n *\r?\n(?= *= (?!= ).* = *\r?\n *\r?\n)', '\n\n' + text)
    split = [article for article in split if article.strip(' \r\n')]
    articles = [[line.split() for line in article.split('\n') if line.split()] for article in split]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wikitext2, 'CHUNK_CHARACTERS', size)
        chunks = list(wikitext2.chunks(re.findall(r'[^\n]*\n|[^\n]+$', text)))
    joined: list[list[list[str]]] = []
    for chunk in chunks:
        if chunk.begins_text:
            joined.append([])
        joined[-1] += cutting.paragraphs(WordTokenizer(), chunk)
    assert joined == articles
