"""Defines the readers to be tested, each with valid files and required properties of its results."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import numpy as np
from helpers import ROOT

from configs import sentences
from experiments import results, study
from nplm_jax.apps.sweeps import sweep_points, sweeps
from nplm_jax.cli import score
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import to_record
from nplm_jax.config.sections import PaperRow
from nplm_jax.data import corpora, vocabulary, vocabulary_files, wikitext2
from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.tokenizers import cutting, tokenizer_files
from nplm_jax.data.tokenizers.pieces import PieceTokenizer
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import arpa, counts, storage, unsmoothed
from nplm_jax.reporting import catalog, packed
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.reporting.results import format_results
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs import experiment, loading, run_inputs
from nplm_jax.runs import workdir as run_folder
from nplm_jax.runs.packing import packed_members
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import BadInput
from tests.helpers import corpus_settings
from tests.nightly.fuzz.damage import Reader

ARPA = rb"""\data\
ngram 1=4
ngram 2=2
ngram 3=1

\1-grams:
-0.5	<unk>	-0.25
-0.3	a	-0.125
-99	<s>
-1	b	0

\2-grams:
-0.75	a b	-0.5
-0.5 b  a

\3-grams:
-0.25	a b a

\end\
"""
WORDS = Vocabulary((RARE, 'the', "'s", 'naïve', '#', 'क्षि', 'x' * 40), (3, 50, 20, 9, 9, 2, 1))
TEXT = 'The cat\'s hat. "No!"\nsaid Dr. Naïve e\u0301 3.14\n\nA dog ran.\n\n = Title = \n \n <unk> of क्षि\n'.encode()
RESULTS = {
    'name': 'a', 'family': 'nplm', 'vocabulary': 9, 'words': {'train': 9, 'valid': 9, 'test': 9},
    'perplexity': {'train': 1.5, 'valid': 2, 'test': None}, 'impossible_words': {'train': 0, 'valid': 0, 'test': 1},
    'parameters': 90, 'seconds': 0.5, 'mixture': {'fixed': {'valid': 2.5, 'test': None, 'weights': [0.5]}},
    'command': 'python launch.py', 'seed': 1,
}  # fmt: skip
METRICS = [
    {
        'step': 10,
        'epoch': 0.5,
        'seconds': 0.1,
        'train_perplexity': 9.5,
        'words_per_second': 1e3,
        'flops_per_second': 1e9,
    },
    {'step': 20, 'epoch': 1.0, 'seconds': 0.2, 'valid_perplexity': None},
]
STATE = {'w': np.arange(6, dtype=np.float32).reshape(3, 2), 'none': None, 'step': np.int32(7)}


def _file(folder: pathlib.Path, data: bytes, name: str = 'file') -> pathlib.Path:
    (path := folder / name).write_bytes(data)
    return path


def _again(read: Callable[..., Any], *args: Any) -> Any:
    """A written file must be readable, because BadInput would be mistaken for the rejection of a damaged file."""
    try:
        return read(*args)
    except BadInput as error:
        raise AssertionError('what was written is refused') from error


def _text_lines(words: Vocabulary, numbers: Iterable[int]) -> bytes:
    return ''.join(f'{w}\t{n}\n' for w, n in zip(words.words, numbers)).encode()


def read_arpa(folder: pathlib.Path, data: bytes) -> None:
    model, words = arpa.read(_file(folder, data))
    assert len(words) == len(set(words.words)) == model.table.vocabulary_size
    contexts_BxN = np.random.default_rng(0).integers(0, len(words), (3, 2))
    before = model.next_word(contexts_BxN)
    assert not np.isnan(before).any()
    arpa.write(model, words, folder / 'again')  # BadInput for reserved words of the format
    again, same = _again(arpa.read, folder / 'again')
    assert same == words
    np.testing.assert_allclose(again.next_word(contexts_BxN), before, rtol=1e-5, atol=1e-5)


def read_vocabulary(folder: pathlib.Path, data: bytes) -> None:
    tokenizer_files.save(WordTokenizer(), {}, folder)
    words = vocabulary_files.load(_file(folder, data))
    vocabulary_files.save(words, folder / 'again')
    assert _again(vocabulary_files.load, folder / 'again') == words and words.words[0] == RARE
    assert len(words.ids) == len(words)


def read_model(folder: pathlib.Path, data: bytes) -> None:
    model = storage.load(_file(folder, data), 4)
    storage.save(model, folder / 'again')
    again, contexts_BxN = _again(storage.load, folder / 'again', 4), np.arange(4)[:, None]
    np.testing.assert_array_equal(again.next_word(contexts_BxN), model.next_word(contexts_BxN))


def read_config(folder: pathlib.Path, data: bytes) -> None:
    _file(folder, data, 'config.json')
    settings = run_folder.read_settings(folder)
    (folder / 'config.json').write_text(json.dumps(to_record(config_lib.to_dict(settings))))
    assert _again(run_folder.read_settings, folder) == settings
    with contextlib.suppress(BadInput):
        run_folder.ensure_folder(folder, _settings())


def read_corpus_facts(folder: pathlib.Path, data: bytes) -> None:
    _file(folder, b'{}', 'config.json')
    _file(folder, data, 'corpus.json')
    (folder / 'checkpoints' / '1').mkdir(parents=True, exist_ok=True)  # otherwise nothing is compared
    run_inputs.record_inputs(folder, _settings(), _data())


def read_packed(folder: pathlib.Path, data: bytes, seal: bool = False) -> None:
    """Reads a packed model. With `seal`, the checksum is valid for the damaged bytes, so the zip file is read."""
    if seal:
        data = (body := data[:-64]) + hashlib.sha256(body).hexdigest().encode()
    with mock.patch.dict(os.environ, NPLM_JAX_CACHE=str(folder / 'cache')):
        loaded = loading.load(_file(folder, data, 'model.nplm'))
        words, model = loaded.vocabulary, loaded.model
    assert seal or data == _packed()
    assert {path.name for path in folder.iterdir()} == {'model.nplm', 'cache'}
    assert not np.isnan(model.next_word(np.zeros((1, 2), np.int32))).any() and len(words) >= 1


@functools.cache
def _packed() -> bytes:
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter('ignore')  # three sentences are too little text for estimating discounts
        run, scratch = pathlib.Path(made) / 'run', pathlib.Path(made) / 'scratch'
        experiment.run(sentences.get_config('kneser_ney_3'), run)
        scratch.mkdir()
        packed.write(scratch / 'run.nplm', packed_members(run, scratch))
        return (scratch / 'run.nplm').read_bytes()


@functools.cache
def _tokenizer(kind: str) -> PieceTokenizer:
    text = (ROOT / 'LICENSE').read_text() + ' Übung 日本。' * 9
    return PieceTokenizer(piece_model=kind, pieces=300).learn([lambda: [TextChunk(text, True)]], map)


def read_tokenizer(folder: pathlib.Path, data: bytes, kind: str, name: str) -> None:
    tokenizer = _tokenizer(kind)
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    tokenizer_files.save(tokenizer, ids, folder)
    _file(folder, data, name)
    loaded = tokenizer_files.load(ids, folder)
    (tokens,) = cutting.tokenize(loaded, [text := 'the cats ate, Übung 日本語。 the mat'])
    if isinstance(loaded, PieceTokenizer):
        assert loaded.decode(tokens) == loaded.normalize(text)
    tokenizer_files.save(loaded, ids, folder)
    assert _again(tokenizer_files.load, ids, folder) == loaded


def _tokenizer_reader(kind: str, name: str) -> Reader:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(kind)
        tokenizer_files.save(tokenizer, {token: i for i, token in enumerate(tokenizer.tokens)}, pathlib.Path(folder))
        valid = (pathlib.Path(folder) / name).read_bytes()
    read = functools.partial(read_tokenizer, kind=kind, name=name)
    return Reader(f'{name}, {kind}', [valid], read, cases=(100, 2_000), is_json=True)


def read_results(folder: pathlib.Path, data: bytes) -> None:
    _file(folder, data, 'results.json')
    if (finished := catalog.finished(folder)) is None:
        raise BadInput('model', 'it is made again')
    assert '| perplexity' in format_results(finished, _settings().paper)
    (folder / 'results.json').write_text(to_json(finished))
    assert catalog.finished(folder) == finished
    sweeps.write_table([sweep_points.Point('', _settings(), {})], folder, {})


def read_metrics(folder: pathlib.Path, data: bytes) -> None:
    rows = reporting.read_metrics(path := _file(folder, data))
    path.write_text(''.join(to_json(row) + '\n' for row in rows))
    assert _again(reporting.read_metrics, path) == rows
    assert all(row['step'] <= 2**63 and row['epoch'] < float('inf') for row in rows)


def read_committed(folder: pathlib.Path, data: bytes) -> None:
    _file(folder, data, 'row.json')

    def show(_: study.Flags) -> str:
        row = results.read(folder, 'row')
        return markdown_table(['test'], [[f'{row["perplexity"]["valid"]:.1f}', f'{row["words"]["test"]:,}']])

    study.shown(show, study.Flags())


def read_text(folder: pathlib.Path, data: bytes) -> None:
    for kind, proper in (('words', True), ('whitespace', False)):
        settings = corpus_settings('text', _file(folder, data), tokens=kind, proper_nouns=proper, numbers=proper)
        corpus = corpora.load(settings)
        assert all(w and len(w.split()) == 1 for w in corpus.words)
        assert sum(map(len, corpus.splits.values())) == len(corpus.words)
        vocabulary_files.save(words := vocabulary.build(corpus.words), folder / 'v')
        assert (
            _again(vocabulary_files.load, folder / 'v') == words
            and words.decode(words.encode(corpus.words)) == corpus.words
        )


def read_wikitext2_folder(folder: pathlib.Path, data: bytes) -> None:
    for split in wikitext2.FILES:
        _file(folder, data if split == 'valid' else TEXT, f'{split}.txt')
    assert all(len(w.split()) == 1 for w in corpora.load(corpus_settings('wikitext2', folder)).words)


def read_stdin(_folder: pathlib.Path, data: bytes) -> None:
    with mock.patch.object(sys, 'stdin', types.SimpleNamespace(buffer=io.BytesIO(data))):
        text = score.read_stdin()
    tokenizer = corpora.make_tokenizer(corpus_settings('text', 'x', proper_nouns=True))
    for line in text.split('\n'):
        cutting.tokenize(tokenizer, [line], WORDS.ids)


def read_checkpoint(folder: pathlib.Path, data: bytes) -> None:
    """Reads a checkpoint. `data` contains its concatenated files from a tar file; only contents may be damaged."""
    with tarfile.open(fileobj=io.BytesIO(_checkpoint()[0])) as archive:
        names = [m.name for m in archive if m.isfile()]
        archive.extractall(folder, **({'filter': 'data'} if hasattr(tarfile, 'data_filter') else {}))  # from 3.11.4 on
    for name, content in zip(names, itertools.chain(data.split(_BETWEEN), itertools.repeat(None))):
        if content is None:
            (folder / name).unlink()
        else:
            _file(folder, content, name)
    with contextlib.closing(CheckpointStore(folder, read_only=True)) as store:
        if (restored := store.restore(STATE, STATE)) is None:
            raise BadInput('model', 'there is none')
    assert restored[2] == {'seconds': 1.5, 'best': float('inf')}
    for tree in restored[:2]:
        assert tree['none'] is None and tree['w'].dtype == np.float32
        assert all(np.array_equal(tree[k], STATE[k]) for k in ('w', 'step'))


_BETWEEN = b'\n-- \xfe\xff --\n'


@functools.cache
def _checkpoint() -> tuple[bytes, bytes]:
    """Returns a checkpoint folder as a tar file, and the concatenated contents of its files."""
    with tempfile.TemporaryDirectory() as made:
        with contextlib.closing(CheckpointStore(folder := pathlib.Path(made) / 'c')) as store:
            store.save(7, STATE, STATE, {'seconds': 1.5, 'best': float('inf')})
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode='w') as archive:
            archive.add(folder, '.')
        with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as archive:
            contents = [archive.extractfile(m).read() for m in archive if m.isfile()]
        shutil.rmtree(folder)
    return packed.getvalue(), _BETWEEN.join(contents)


@functools.cache
def _settings() -> config_lib.Settings:
    return config_lib.from_config(sentences.get_config())


@functools.cache
def _data():
    return loading.load_dataset(_settings())


def _corpus_facts() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        run_inputs.record_inputs(pathlib.Path(folder), _settings(), _data())
        return (pathlib.Path(folder) / 'corpus.json').read_bytes()


def _model() -> bytes:
    counted = counts.count(np.array([1, 2, 3, 1, 2, 1]), Span(0, 6), 2, 4)
    with tempfile.TemporaryDirectory() as folder:
        storage.save(unsmoothed.unsmoothed_backoff(counted), path := pathlib.Path(folder) / storage.MODEL_FILE)
        return path.read_bytes()


def _config() -> bytes:
    settings = dataclasses.replace(_settings(), paper=PaperRow('MLP9', 1.0, 2.0, 3.0))
    return json.dumps(to_record(config_lib.to_dict(settings)), indent=2).encode()


READERS = [
    Reader('ARPA file', [ARPA], read_arpa),
    Reader('vocabulary.txt', [_text_lines(WORDS, WORDS.counts)], read_vocabulary),
    Reader(storage.MODEL_FILE, [_model()], read_model),
    Reader('packed model', [_packed()], read_packed),
    Reader('packed model, right checksum', [_packed()], functools.partial(read_packed, seal=True)),
    *(_tokenizer_reader(*of) for of in itertools.product(('bpe', 'unigram'), tokenizer_files.FILES)),
    Reader('config.json', [_config()], read_config, is_json=True),
    Reader('corpus.json', [_corpus_facts()], read_corpus_facts, is_json=True),
    Reader('results.json', [json.dumps(RESULTS, indent=2).encode()], read_results, is_json=True),
    Reader('committed results', [json.dumps(RESULTS, indent=2).encode()], read_committed, is_json=True),
    Reader('metrics.jsonl', [''.join(json.dumps(m) + '\n' for m in METRICS).encode()], read_metrics, is_json=True),
    Reader('text', [TEXT], read_text),
    Reader('text on stdin', [TEXT], read_stdin),
    Reader('WikiText-2 folder', [TEXT], read_wikitext2_folder),
    Reader('checkpoint', [_checkpoint()[1]], read_checkpoint, cases=(6, 200)),
]  # fmt: skip
