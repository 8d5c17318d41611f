"""Tests that texts are tokenized in chunks by several processes and that the result is cached."""

import os
import pathlib
import re
import shutil
import sys
import threading
import time
import types

import numpy as np
import pytest
from helpers import corpus_settings, numbers, refuses

from nplm_jax.config import plugins
from nplm_jax.data import corpora, encoding, mapped_arrays, preparation, prepared_texts, text_files, vocabulary
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.word_stream import WordStream
from nplm_jax.executors import workers
from nplm_jax.utils import packages
from nplm_jax.utils.errors import BadInput


def test_a_piece_may_go_on_with_a_paragraph():
    chunks = [TextChunk('a b ', True), TextChunk('c\n\nd', False, False), TextChunk('e', True)]
    stream, *_ = preparation.tokenize([lambda: chunks], WordTokenizer('words', boundary_tokens=True))
    assert stream.words() == '<text> <p> a b c <p> d <text> <p> e'.split()


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A text that counts as large, and an empty cache."""
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setattr(preparation, 'MIN_CACHED_BYTES', 100)
    monkeypatch.setattr(encoding, 'MAX_WORDS_IN_MEMORY', 50)
    monkeypatch.setattr(mapped_arrays, 'CHUNK_SIZE', 64)
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 200)
    monkeypatch.setattr(text_files, '_SEARCH_CHARACTERS', 100)
    words = np.random.default_rng(1).zipf(1.5, 600) % 40
    text = '\n\n'.join(' '.join(f'W{w}' for w in words[i : i + 20]) for i in range(0, 600, 20))
    (tmp_path / 'text.txt').write_text(text)
    return corpus_settings('text', path=str(tmp_path / 'text.txt'))


def in_memory(settings):
    text = pathlib.Path(settings.path).read_text()
    (stream,) = preparation.tokenize([lambda: [TextChunk(text, True)]], corpora.make_tokenizer(settings))[:1]
    return stream


def test_a_large_text_is_cut_once_and_mapped(large, monkeypatch):
    expected = in_memory(large)
    corpus = corpora.load(large)
    assert isinstance(corpus.stream.type_ids_L, np.memmap)
    assert corpus.words == expected.words() and list(corpus.stream.types) == list(expected.types)
    monkeypatch.setattr(cutting, 'read_chunk', None)  # nothing is cut again
    again = corpora.load(large)
    assert again.words == corpus.words and again.splits == corpus.splits
    words = encoding.build_vocabulary(again, large)
    assert words == vocabulary.build(expected.words())
    data = encoding.build_dataset(again, words)
    assert isinstance(data.tokens_T, np.memmap) and data.tokens_T.dtype == np.int32
    np.testing.assert_array_equal(data.tokens_T, words.encode(expected.words()))
    np.testing.assert_array_equal(encoding.build_dataset(again, words).tokens_T, data.tokens_T)


def test_a_progress_bar_never_exceeds_its_total(large, monkeypatch):
    bars, make = [], preparation.progress_bar
    monkeypatch.setattr(
        preparation, 'progress_bar', lambda *args, **options: bars.append(make(*args, **options)) or bars[-1]
    )
    file = pathlib.Path(large.path)
    file.write_text(file.read_text().replace(' W', ' w'))
    corpora.load(corpus_settings('text', path=large.path, proper_nouns=True))  # finds them in a first pass
    size = file.stat().st_size
    assert len(bars) == 2 and all(0 < bar.n <= bar.total == size for bar in bars)


def test_special_tokens_of_a_text_in_the_cache_are_told_again(large, capsys):
    path = pathlib.Path(large.path)
    path.write_text(path.read_text() + ' <s> </s> <s>')
    for _ in range(2):
        assert {'<s>', '</s>'}.isdisjoint(corpora.load(large).words)
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search('<s> .*, </s> ', line) and '2' in numbers(line)


@pytest.mark.parametrize('part', [1, 7, 31])
def test_lines_of_lmplz_are_those_of_the_file_whatever_its_chunks(tmp_path, monkeypatch, part):
    rng = np.random.default_rng(part)
    lines = [' '.join(rng.choice(['a', 'b', '\u00a0', '\u2028', '\r'], k)) for k in rng.integers(0, 5, 300)]
    lines[40] = 'c ' * 90  # longer than a chunk
    (tmp_path / 'text.txt').write_text('\n'.join([*lines, '']), newline='')
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 50)
    monkeypatch.setattr(text_files, '_SEARCH_CHARACTERS', part)
    corpus = corpora.load(corpus_settings('text', path=str(tmp_path / 'text.txt'), tokens='lmplz', lowercase=False))
    expected = [['<p>', *line.replace('\r', ' ').split(' ')] for line in lines]
    assert corpus.words == ['<text>', *(word for line in expected for word in line if word)]


def test_the_code_of_a_notebook_counts_as_changed_each_time(monkeypatch):
    monkeypatch.setitem(sys.modules, 'notebook', types.ModuleType('notebook'))
    in_notebook = type('Blanks', (WordTokenizer,), {'__module__': 'notebook'})
    built_in, first, second = map(preparation._code_digest, (WordTokenizer(), in_notebook(), in_notebook()))
    assert built_in == preparation._code_digest(WordTokenizer()) and len({built_in, first, second}) == 3


@pytest.mark.parametrize('module', ['data/tokenizers/words', 'data/word_stream', 'utils/io'])
def test_the_digest_of_the_code_is_that_of_every_module_that_makes_words(tmp_path, monkeypatch, module):
    package = pathlib.Path(preparation.__file__).parents[1]
    folders = ('data', 'config', 'utils')
    for folder in folders:
        shutil.copytree(package / folder, tmp_path / folder, ignore=shutil.ignore_patterns('__pycache__'))
    monkeypatch.setattr(packages, '__file__', str(tmp_path / 'utils' / 'packages.py'))
    assert packages.package_digest(*folders) == preparation._CODE
    with (tmp_path / f'{module}.py').open('a') as file:
        file.write('# a comment')
    assert packages.package_digest(*folders) != preparation._CODE


def test_other_code_cuts_again_in_the_same_folder(large, monkeypatch):
    monkeypatch.setattr(plugins, '_digests', digests := {})  # tokenizers of plug-ins
    before = corpora.load(large)
    monkeypatch.setattr(workers, 'MAX_PROCESSES', 1)  # other processes do not see the change
    monkeypatch.setattr(preparation, '_CODE', 'changed')

    def read_chunk(tokenizer, chunk):
        return WordStream.from_words(chunk.text.lower().split()), {}, True, 1

    monkeypatch.setattr(cutting, 'read_chunk', read_chunk)
    after = corpora.load(large)
    assert after.words == pathlib.Path(large.path).read_text().lower().split() != before.words
    assert len(list((prepared_texts.cache_folder() / 'texts').iterdir())) == 1
    assert not digests
    token_ids = np.arange(len(before.stream.types), dtype=np.int32)
    for stream in (before.stream, after.stream):  # the same type numbers
        np.testing.assert_array_equal(prepared_texts.encode(stream.type_ids_L, token_ids), stream.type_ids_L)


def test_a_file_that_is_gone_is_named(tmp_path):
    with refuses('gone.txt'):
        prepared_texts.facts(tmp_path / 'gone.txt')


def replace_by_a_file_of_the_same_time(path, text):
    other = path.with_suffix('.new')
    other.write_text(text)
    os.replace(other, path)


def test_a_copy_of_the_same_bytes_is_not_cut_again(large, monkeypatch, capsys):
    before = corpora.load(large).words
    path = pathlib.Path(large.path)
    replace_by_a_file_of_the_same_time(path, path.read_text())
    monkeypatch.setattr(cutting, 'read_chunk', None)  # nothing is cut again
    assert corpora.load(large).words == before and capsys.readouterr().err == ''


def test_a_file_that_changes_meanwhile_is_one_line(large, monkeypatch):
    read_chunks = text_files.read_chunks

    def write_meanwhile(key, file, *choices):
        yield from read_chunks(key, file, *choices)
        file.write_text(file.read_text() + ' more')

    monkeypatch.setattr(text_files, 'read_chunks', write_meanwhile)
    with refuses('text.txt'):
        corpora.load(large)
    monkeypatch.undo()


def test_a_cache_that_cannot_be_written_is_one_line(large, monkeypatch, tmp_path):
    (tmp_path / 'file').write_text('')
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'file' / 'cache'))
    with pytest.raises(BadInput) as caught:
        corpora.load(large)
    assert caught.value.key.startswith(f'{tmp_path}/file/cache/texts/')


def test_a_folder_that_was_removed_is_locked_anew(tmp_path):
    folder, inside, most = tmp_path / 'folder', [], []

    def remove():
        with prepared_texts.locked(folder):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            shutil.rmtree(folder, ignore_errors=True)  # the last step: from here on another process may enter

    threads = [threading.Thread(target=remove) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8
