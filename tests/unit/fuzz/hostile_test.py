"""Tests that malicious and meaningless files give one-line errors in seconds, with memory bounded by their size.

This includes the cases found by the search in tests/nightly/fuzz.
"""

import contextlib
import json
import os
import re
import signal
import tracemalloc

import pytest
from helpers import ROOT, corpus_settings, others_nightly, refuses

from configs import sentences
from experiments import results, study
from nplm_jax.cli import score
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, vocabulary_files, wikitext2
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer, CharacterTokenizer
from nplm_jax.data.tokenizers.pieces import PieceTokenizer
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.ngram import arpa
from nplm_jax.reporting import catalog
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import loading, run_inputs, workdir
from nplm_jax.utils.errors import BadInput

LARGE = {  # the start of a line, and its filling
    'arpa': (b'\\data\\\nngram 1=2\n\\1-grams:\n', [b'-1\tx', b'x y ', b'9', b' ', b'-0.1 a b ']),
    'vocabulary': (b'<rare>\t1\n', [b'x', b'9', b'\t', b'x\t', b' ']),
    'metrics': (b'{"step": 1, "epoch": 1, "seconds": 1}\n{"step": ', [b'[', b'9', b'"x', b' ']),
    'results': (b'{"a": ', [b'[', b'9', b'{"a":', b'-']),
}
MARKS = {
    'two classes': '\u0301\u0327',
    'a mark that combines': '\u0308',
    'halfwidth voicing, which nfkc makes a mark': '\u0308\uff9e',
}
NORMALIZED = {'words': WordTokenizer('words')} | {
    f'{made.__name__} {form}': made(normalization=form)
    for made in (ByteTokenizer, CharacterTokenizer, PieceTokenizer)
    for form in ('nfc', 'nfkc')
}
RUNS = re.compile(
    r'\b(c?pickle|cloudpickle|dill|marshal|shelve|joblib|yaml|allow_pickle)\b|(?<![\w.])(eval|exec|compile|__import__)\('
    r'|\b(np|jnp|torch)\.load\(|\bos\.(system|popen)\(|shell=True'
)
LOADS_NO_OBJECT = r'np\.load\((?=.*allow_pickle=False)|allow_pickle=False'

READERS = {
    'arpa': arpa.read,
    'vocabulary': vocabulary_files.load,
    'metrics': reporting.read_metrics,
    'results': lambda path: results.read(path.parent, path.stem),
    'text': lambda path: corpora.load(corpus_settings('text', path)),
    'validation text': lambda path: corpora.load(
        corpus_settings('text', ROOT / 'README.md', valid_path=str(path), test_path=str(path))
    ),
}


@contextlib.contextmanager
def within(seconds, megabytes=0):
    """Fails if the block takes longer or uses more memory."""

    def ring(*_):
        raise TimeoutError(f'more than {seconds} s')

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    tracemalloc.start()
    try:
        yield
        assert not megabytes or tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def refusal(read, *args):
    with pytest.raises(BadInput) as caught:
        read(*args)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1100
    return str(caught.value)


# --- what is no file -------------------------------------------------------------------------------------


@pytest.mark.parametrize('reader', READERS)
def test_a_fifo_a_device_and_a_folder_are_refused_and_nothing_waits(tmp_path, reader):
    os.mkfifo(tmp_path / 'fifo.json')
    os.symlink('/dev/zero', tmp_path / 'zero.json')
    (tmp_path / 'folder.json').mkdir()
    with within(20, megabytes=30):
        for name in ('fifo', 'zero'):
            assert f'{name}.json' in refusal(READERS[reader], tmp_path / f'{name}.json')
        if 'text' not in reader:
            assert 'folder.json' in refusal(READERS[reader], tmp_path / 'folder.json')


def test_a_file_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    with (tmp_path / 'row.json').open('wb') as file:
        file.truncate(2**40)  # a hole
    with within(20, megabytes=30):
        for reader in READERS:  # a text may have any length; its first block is rejected
            expected = 'NUL' if 'text' in reader else '1,099,511,627,776'
            expected = '1,048,576 bytes' if 'ARPA' in reader or 'arpa' in reader else expected
            assert expected in refusal(READERS[reader], tmp_path / 'row.json')


def test_a_stdin_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(score, '_MAX_BYTES', 2**20)
    with open('/dev/zero') as zero, within(20, megabytes=30):
        monkeypatch.setattr('sys.stdin', zero)
        assert refusal(score.read_stdin).startswith('stdin: ')


def test_a_folder_of_text_is_read_without_what_it_links_to(tmp_path):
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'outside' / 'secret.txt').write_text('hidden words')
    folder = tmp_path / 'in'
    (folder / 'sub').mkdir(parents=True)
    (folder / 'sub' / 'a.txt').write_text('a1 a2 a3')
    (folder / 'up').symlink_to('..')
    (folder / 'outside').symlink_to(tmp_path / 'outside')
    (folder / 'loop').symlink_to(folder)
    (folder / 'secret.txt').symlink_to('../outside/secret.txt')
    (folder / 'nowhere').symlink_to('nowhere')
    os.mkfifo(folder / 'fifo')
    with within(20):
        settings = corpus_settings('text', folder, boundary_tokens=False, train=0.3, valid=0.3)
        assert corpora.load(settings).words == ['a1', 'a2', 'a3']
    for split in wikitext2.FILES:
        (folder / f'{split}.txt').symlink_to('../outside/secret.txt')
    message = refusal(corpora.load, corpus_settings('wikitext2', folder))
    assert 'train.txt' in message and 'wiki.train.tokens' in message


@pytest.mark.parametrize('path', ['a\0b', 'x' * 5000, '\ud800', '~nobody-of-this-name/x'])
def test_a_path_that_can_be_none(path):
    for name in ('text', 'wikitext2', 'ap_news'):
        assert refusal(lambda name=name: corpora.load(corpus_settings(name, path))).startswith("corpus.path='")


def test_a_letter_with_few_marks_has_them_all():
    few = 'e\u0323\u0302 ' + 'x' + '\u0301' * 60
    assert cutting.paragraphs(WordTokenizer('words'), TextChunk(few, True)) == [['ệ', 'x' + '\u0301' * 60]]
    assert ByteTokenizer(normalization='nfc').normalize(few) == 'ệ x' + '\u0301' * 60


@pytest.mark.parametrize(
    'text', ['[' * 10**6, '{"a":' * 10**5 + '1' + '}' * 10**5, '{"a":' + '[' * 60 + ']' * 60 + '}']
)
def test_json_too_deep_is_refused(tmp_path, text):
    (tmp_path / 'config.json').write_text(text)
    assert f'{tmp_path}/config.json: ' in refusal(workdir.read_settings, tmp_path)


# --- what the search found -------------------------------------------------------------------------------

HEAD = b'\\data\\\nngram 1=1\n\\1-grams:\n-1\ta\n\\end\\\n'


@pytest.mark.parametrize(
    'reader, data, why',
    [
        ('vocabulary', b'<rare>\t' + b'9' * 5000 + b'\n', ':1: '),
        ('vocabulary', '<rare>\t٣\n'.encode(), ':1: '),
        ('vocabulary', b'<rare>\t1\nth\xff\t2\n', ':2: '),
        ('vocabulary', b'<rare>\t1\nth\0\t2\n', ':2: '),
        ('vocabulary', b'<rare>\t1\nthe\t2\nof\t1', ':3: '),
        ('arpa', HEAD.replace(b'=1', b'=' + b'9' * 5000), ':2: '),
        ('arpa', b'\\data\\\n' + b''.join(b'ngram %d=0\n' % k for k in range(1, 10**5)), ':102: '),
        ('arpa', HEAD.replace(b'\ta', b'\ta\0'), ':4: '),
        (
            'metrics',
            b'{"step": 1, "epoch": 1, "seconds": 1}\nx\n{"step": 2, "epoch": 1, "seconds": 1}\n',
            ':2: ',
        ),
        ('metrics', b'[1]\n', ':1: '),
        ('metrics', b'{"step": 1, "epoch": 1}\n', ':1: '),
        ('metrics', b'{"step": 1}\n', ':1: '),
        ('metrics', b'{"step": NaN, "epoch": 1}\n', ':1: '),
        ('metrics', b'{"step": 1, "epoch": "1"}\n', ':1: '),
        ('results', b'{\n"a": "\xff"}', ':2: '),
        ('results', b'{\n"a": 1e999}', ': '),
        ('results', b'{\n"a": ' + b'9' * 5000 + b'}', ': '),
        ('results', b'{"a": "\\ud800"}', ': '),
        ('results', b'{"a": 1,\n!}', ':2: '),
    ],
)
def test_a_file_that_once_ended_in_a_traceback_or_without_a_line(tmp_path, reader, data, why):
    (tmp_path / 'row.json').write_bytes(data)
    with within(20):
        assert f'{tmp_path}/row.json{why}' in refusal(READERS[reader], tmp_path / 'row.json')


def test_a_metrics_line_cut_short_is_left_out(tmp_path):
    for end in ('{"step": 2, "ep', '{"step": 2', '\0' * 50, '{"step": 2, "epoch": 3, "seconds": 4}'):
        (tmp_path / 'm').write_text('{"step": 1, "epoch": 1, "seconds": 1}\n' + end)
        assert [row['step'] for row in reporting.read_metrics(tmp_path / 'm')] == [1]


def test_an_old_separator_is_a_blank():
    for kind in ('words', 'whitespace'):
        assert cutting.paragraphs(WordTokenizer(kind), TextChunk('a\x1cb\x1f c', True)) == [['a', 'b', 'c']]


@pytest.mark.parametrize(
    'key, value',
    [
        ('optimizer.learning_rate', 10**400), ('model.h', 10**30), ('model.h', 2**31), ('name', 'a\nb'),
        ('name', 'a\0'), ('train.epochs', 1.5), ('seed', True), ('model', [1]), ('model.x\ny', 1),
    ],
)  # fmt: skip
def test_a_value_of_the_config_that_no_run_can_have(key, value):
    values = config_lib.to_dict(config_lib.from_config(sentences.get_config()))
    *sections, last = key.split('.')
    section = values
    for name in sections:
        section = section[name]
    section[last] = value
    assert key.replace('\n', '\\n') in refusal(config_lib.from_config, values)


@pytest.mark.parametrize('text', [b'\xff', b'[' * 10**5, b'[]', b'1', b'{}', b''])
def test_facts_of_the_corpus_that_are_none(tmp_path, text):
    settings = config_lib.from_config(sentences.get_config())
    (tmp_path / 'checkpoints' / '1').mkdir(parents=True)  # otherwise nothing is compared
    (tmp_path / 'config.json').write_text('{}')
    (tmp_path / 'corpus.json').write_bytes(text)
    refusal(run_inputs.record_inputs, tmp_path, settings, loading.load_dataset(settings))


@pytest.mark.parametrize(
    'change',
    [
        {'perplexity': 'abc'}, {'perplexity': {'a': 1, 'b': 2, 'c': 3}}, {'seconds': None}, {'seconds': '1'},
        {'perplexity': {'train': 1, 'valid': True, 'test': 1}}, {'mixture': [1]}, {'mixture': {'fixed': {}}},
        {'impossible_words': {'test': None}}, {'impossible_words': 3}, {'name': 3},
        {'sizes': {'test': {'words': None}}}, {'origins': {}}, {'origins': [3]}, {'origins': [{'versions': 3}]},
    ],
)  # fmt: skip
def test_results_that_cannot_be_shown_are_none(tmp_path, change):
    good = {'name': 'a', 'perplexity': {'train': 1, 'valid': 2.5, 'test': None}, 'seconds': 1}
    (tmp_path / 'results.json').write_text(json.dumps(good))
    assert catalog.finished(tmp_path) == good
    (tmp_path / 'results.json').write_text(json.dumps(good | change))
    assert catalog.finished(tmp_path) is None


def test_a_table_of_results_of_another_form_ends_in_one_line(tmp_path):
    (tmp_path / 'a.json').write_text('{"perplexity": 3}')
    for make in (lambda f: f['perplexity']['test'], lambda f: f['seconds'], lambda f: f'{f:.1f}', lambda f: f.x):
        with refuses('results'):
            study.shown(lambda _, make=make: make(results.read(tmp_path, 'a')), study.Flags())


@pytest.mark.nightly
@pytest.mark.parametrize('reader', LARGE)
def test_a_line_of_a_hundred_megabytes_is_refused_in_seconds(tmp_path, reader):
    begin, fillings = LARGE[reader]
    for filling in fillings:
        (tmp_path / 'row.json').write_bytes(begin + filling * (10**8 // len(filling)) + b'\n')
        with within(300, megabytes=900):
            assert 'row.json' in refusal(READERS[reader], tmp_path / 'row.json')


@pytest.mark.nightly
def test_a_word_of_a_hundred_megabytes_is_a_word(tmp_path):
    (tmp_path / 'v').write_text('<rare>\t1\n' + 'x' * 10**8 + '\t3\n')
    (tmp_path / 't').write_text('a b ' + 'x' * 10**8)
    with within(300, megabytes=900):
        assert len(vocabulary_files.load_words(tmp_path / 'v').words[1]) == 10**8
        settings = corpus_settings('text', tmp_path / 't', boundary_tokens=False, lowercase=False, train=0.4, valid=0.3)
        assert len(corpora.load(settings).words[2]) == 10**8


@pytest.mark.parametrize('marks', MARKS)
@pytest.mark.parametrize('tokenizer', others_nightly(NORMALIZED, ('words',)))
def test_a_letter_with_many_marks_takes_no_longer_than_others(tokenizer, marks):
    with within(20):
        text = NORMALIZED[tokenizer].normalize('a' + MARKS[marks] * 10**6)
        assert NORMALIZED[tokenizer].normalize(text) == text


def test_nothing_that_a_file_says_is_ever_run():
    """Only a config file and its sweep() are code. All other files are data, and NumPy does not load objects.

    Data for a pickle may be hashed, but pickles are never read.
    """
    sources = [*ROOT.glob('nplm_jax/**/*.py'), *ROOT.glob('experiments/**/*.py'), *ROOT.glob('configs/*.py')]
    assert len(sources) > 60
    # Pickles that are exchanged with child processes.
    excepted = 'nplm_jax/executors/processes.py', 'nplm_jax/apps/sweeps/launchers.py'
    sources = [path for path in sources if str(path.relative_to(ROOT)) not in excepted]
    for path in [*sources, ROOT / 'launch.py']:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            safe = re.sub(rf'{LOADS_NO_OBJECT}|^import pickle$|pickle\.dumps\(', '', line)
            assert not RUNS.search(safe), f'{path}:{number}: {line}'
