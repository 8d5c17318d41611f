"""Tests that texts are tokenized in chunks by several processes and cached."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from helpers import BLANKS, PYTHONPATH, corpus_settings
from hypothesis import given
from hypothesis import strategies as st

from nplm_jax.config import plugins
from nplm_jax.data import corpora, encoding, mapped_arrays, preparation, prepared_texts, text_files
from nplm_jax.data.tokenizers.tokenizer import TextChunk

TEXT = "The dog's bone , 3.5 of them .\n\nMr Smith saw Mr Smith\n \nand the Dogs'\n\n\nI said , Mr Smith came\n"
CHOICES = dict.fromkeys(('lowercase', 'split_possessive', 'boundary_tokens', 'numbers', 'proper_nouns'), st.booleans())


@given(st.fixed_dictionaries(CHOICES), st.sampled_from([10, 25, 60, 1000]))
def test_chunks_make_the_stream_of_the_whole_text(choices, size):
    settings = corpus_settings('text', **choices)
    (whole,) = preparation.tokenize([lambda: [TextChunk(TEXT, True)]], corpora.make_tokenizer(settings))[:1]
    borders = [0, *(i for i in range(size, len(TEXT)) if TEXT[:i].endswith('\n\n')), len(TEXT)]
    chunks = [TextChunk(TEXT[a:b], a == 0) for a, b in zip(borders, borders[1:])]
    in_chunks, lengths, *_ = preparation.tokenize([lambda: chunks], corpora.make_tokenizer(settings))
    assert in_chunks.words() == whole.words() and lengths == (len(whole.words()),)


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A text that is treated as large, with a separate cache."""
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


def test_other_choices_are_kept_beside_it(large):
    corpora.load(large)
    cased = dataclasses.replace(large, tokenizer=dataclasses.replace(large.tokenizer, lowercase=False))
    assert corpora.load(cased).words == in_memory(cased).words() != corpora.load(large).words


def test_an_edited_tokenizer_plugin_cuts_again(large, tmp_path, monkeypatch, write_module):
    monkeypatch.setenv(plugins.ENVIRONMENT, 'edited_blanks')
    for source, initial in ((BLANKS, 'W'), (BLANKS.replace('[string]', '[string.lower()]'), 'w')):
        write_module('edited_blanks', source)
        settings = corpus_settings('text', path=large.path, tokens='edited_blanks:Blanks')
        assert {word[0] for word in corpora.load(settings).words} == {'<', initial}
    (tmp_path / 'edited_blanks.py').write_text(BLANKS)  # this process continues to use the imported code
    assert {word[0] for word in corpora.load(settings).words} == {'<', 'w'}
    write_module('edited_blanks', BLANKS)
    settings = corpus_settings('text', path=large.path, tokens='edited_blanks:Blanks')
    assert {word[0] for word in corpora.load(settings).words} == {'<', 'W'}


def test_a_changed_file_is_cut_again(large, capsys):
    before = corpora.load(large).words
    path = pathlib.Path(large.path)
    os.utime(path, ns=(1, 1))  # only the modification time differs
    assert corpora.load(large).words == before and capsys.readouterr().err == ''
    path.write_text(path.read_text().replace('W1', 'X1'))
    assert corpora.load(large).words == in_memory(large).words() != before
    assert str(path) in capsys.readouterr().err


def rewrite_keeping_the_time(path, text):
    path.write_text(text)


def replace_by_a_file_of_the_same_time(path, text):
    other = path.with_suffix('.new')
    other.write_text(text)
    os.replace(other, path)


@pytest.mark.parametrize('write', [rewrite_keeping_the_time, replace_by_a_file_of_the_same_time])
def test_another_text_of_the_same_length_and_time_is_cut_again(large, write, capsys):
    before = corpora.load(large)
    path = pathlib.Path(large.path)
    status = path.stat()
    write(path, path.read_text().replace('W1 ', 'X1 '))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as with `cp -p`, `rsync -t` or `tar`
    after = corpora.load(large)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert after.words == in_memory(large).words() != before.words
    assert str(path) in capsys.readouterr().err


def test_tokens_of_an_earlier_text_are_not_those_of_the_next(large):
    before = corpora.load(large)
    words = encoding.build_vocabulary(before, large)
    path = pathlib.Path(large.path)
    path.write_text(path.read_text().replace('W1 ', 'W2 '))
    after = corpora.load(large)
    token_ids = np.arange(len(before.stream.types), dtype=np.int32)
    for stream in (before.stream, after.stream):  # the same ids of types
        tokens_T = prepared_texts.encode(stream.type_ids_L, token_ids)
        np.testing.assert_array_equal(tokens_T, token_ids[np.asarray(stream.type_ids_L)])
    assert words != encoding.build_vocabulary(after, large)


@pytest.mark.parametrize('missing', ['manifest.json', 'types.txt', 'type_ids-*'])
def test_what_is_not_complete_is_made_again(large, missing):
    before = corpora.load(large).words
    (folder,) = (prepared_texts.cache_folder() / 'texts').iterdir()
    (file,) = folder.glob(missing)
    file.unlink()
    assert corpora.load(large).words == before


def test_killed_in_the_middle_leaves_nothing_that_is_used(large, tmp_path):
    script = (
        'import os, signal, sys\n'
        'from helpers import corpus_settings\n'
        'from nplm_jax.data import corpora, preparation, text_files\n'
        'preparation.MIN_CACHED_BYTES, text_files.CHUNK_CHARACTERS, text_files._SEARCH_CHARACTERS = 100, 200, 100\n'
        'read_chunks = text_files.read_chunks\n'
        'def killed(*arguments):\n'
        '    for number, chunk in enumerate(read_chunks(*arguments)):\n'
        '        yield chunk\n'
        '        if number == 4:\n'
        '            os.kill(os.getpid(), signal.SIGKILL)\n'
        'text_files.read_chunks = killed\n'
        "corpora.load(corpus_settings('text', path=sys.argv[1]))\n"
    )
    env = {**os.environ, 'PYTHONPATH': PYTHONPATH}
    assert subprocess.run([sys.executable, '-c', script, large.path], env=env).returncode == -9
    (folder,) = (tmp_path / 'cache' / 'texts').iterdir()
    assert not (folder / 'manifest.json').exists()
    assert corpora.load(large).words == in_memory(large).words()
    assert (folder / 'manifest.json').exists() and not list(folder.glob('.*.tmp'))
