"""Hostile and meaningless files are refused in one line, in seconds, with memory in proportion to their size.

The cases that the search of tests/nightly/fuzz found are here too.
"""

import contextlib
import re
import signal
import tracemalloc

import pytest
from helpers import ROOT, corpus_settings, others_nightly

from experiments import results
from nplm_jax.data import corpora, vocabulary
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer, CharacterTokenizer
from nplm_jax.data.tokenizers.pieces import PieceTokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.models.ngram import arpa
from nplm_jax.runs import reporting
from nplm_jax.utils.errors import BadInput

READERS = {
    'arpa': arpa.read,
    'vocabulary': vocabulary.load,
    'metrics': reporting.read_metrics,
    'results': lambda path: results.read(path.parent, path.stem),
    'text': lambda path: corpora.load(corpus_settings('text', path)),
    'validation text': lambda path: corpora.load(
        corpus_settings('text', ROOT / 'README.md', valid_path=str(path), test_path=str(path))
    ),
}


@contextlib.contextmanager
def within(seconds, megabytes=0):
    """Fails what takes longer, or more memory."""

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


LARGE = {  # how a line begins, and what fills it
    'arpa': (b'\\data\\\nngram 1=2\n\\1-grams:\n', [b'-1\tx', b'x y ', b'9', b' ', b'-0.1 a b ']),
    'vocabulary': (b'<rare>\t1\n', [b'x', b'9', b'\t', b'x\t', b' ']),
    'metrics': (b'{"step": 1, "epoch": 1, "seconds": 1}\n{"step": ', [b'[', b'9', b'"x', b' ']),
    'results': (b'{"a": ', [b'[', b'9', b'{"a":', b'-']),
}


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
        assert len(vocabulary.load(tmp_path / 'v').words[1]) == 10**8
        settings = corpus_settings('text', tmp_path / 't', boundary_tokens=False, lowercase=False, train=0.4, valid=0.3)
        assert len(corpora.load(settings).words[2]) == 10**8


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


@pytest.mark.parametrize('marks', MARKS)
@pytest.mark.parametrize('tokenizer', others_nightly(NORMALIZED, ('words',)))
def test_a_letter_with_many_marks_takes_no_longer_than_others(tokenizer, marks):
    with within(20):
        text = NORMALIZED[tokenizer].normalize('a' + MARKS[marks] * 10**6)
        assert NORMALIZED[tokenizer].normalize(text) == text


RUNS = re.compile(
    r'\b(c?pickle|cloudpickle|dill|marshal|shelve|joblib|yaml|allow_pickle)\b|(?<![\w.])(eval|exec|compile|__import__)\('
    r'|\b(np|jnp|torch)\.load\(|\bos\.(system|popen)\(|shell=True'
)


LOADS_NO_OBJECT = r'np\.load\((?=.*allow_pickle=False)|allow_pickle=False'


def test_nothing_that_a_file_says_is_ever_run():
    """A config file and its sweep() are Python, and named so; all else is data. NumPy reads no objects.

    What a pickle is made of may be digested; no pickle is read.
    """
    sources = [*ROOT.glob('nplm_jax/**/*.py'), *ROOT.glob('experiments/**/*.py'), *ROOT.glob('configs/*.py')]
    assert len(sources) > 60
    sources.remove(ROOT / 'nplm_jax/utils/processes.py')  # pickles for processes that it starts, and from them
    for path in [*sources, ROOT / 'launch.py']:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            safe = re.sub(rf'{LOADS_NO_OBJECT}|^import pickle$|pickle\.dumps\(', '', line)
            assert not RUNS.search(safe), f'{path}:{number}: {line}'
