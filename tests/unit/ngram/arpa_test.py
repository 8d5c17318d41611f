"""Tests that written ARPA files are read back unchanged, and that errors name the invalid line."""

import bz2
import contextlib
import functools
import gzip
import lzma
import re
import tracemalloc
import types

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import arpa, arpa_files, counts, kneser_ney, unsmoothed
from nplm_jax.ngram.arpa_blocks import BlockParser
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

V = 7
WORDS = Vocabulary((RARE, *'abcdef'), (1,) * V)
TRAIN = Span(0, 200)

FILE = r"""
\data\
ngram 1=4
ngram 2=2

\1-grams:
-0.5	<unk>	-0.25
-0.3	a	-0.125
-99	<s>
-1	b

\2-grams:
-0.75	a b
-0.5 b  a

\end\
"""


@pytest.fixture(params=[2**18, 1], ids=['line by line', 'a block per line'])
def block(request, monkeypatch):
    """Small files are one block, which is parsed line by line; other blocks within a section are parsed as a whole."""
    monkeypatch.setattr(arpa, '_BLOCK', request.param)


def stream():
    return np.minimum(np.random.default_rng(2).geometric(0.3, 240) - 1, 5)


MODELS = {
    'backoff': lambda t: kneser_ney.fit_backoff(counts.count(t, TRAIN, 4, V)),
    'modified': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 3, V)),
    'unigram': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 1, V)),
    'zeros': lambda t: unsmoothed.unsmoothed_backoff(counts.count(t, TRAIN, 3, V)),
}


@pytest.mark.parametrize('name', MODELS)
def test_what_is_written_comes_back(tmp_path, block, name):
    tokens_T = stream()
    model = MODELS[name](tokens_T)
    arpa.write(model, WORDS, tmp_path / 'model.arpa')
    read, words = arpa.read(tmp_path / 'model.arpa')
    assert words.words == WORDS.words
    contexts = np.random.default_rng(0).integers(0, V, (50, 4))
    np.testing.assert_allclose(read.next_word(contexts), model.next_word(contexts), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(
        read.score(tokens_T, Span(0, 240)), model.score(tokens_T, Span(0, 240)), rtol=2e-6, atol=2e-6
    )


def test_the_written_file_by_hand(tmp_path):
    path = tmp_path / 'model.arpa'
    model = unsmoothed.unsmoothed_backoff(counts.count(np.array([1, 2, 1, 2]), Span(0, 4), 2, 3))
    arpa.write(model, Vocabulary((RARE, 'a', 'b'), (0, 2, 2)), path)
    assert path.read_text(encoding='utf-8').split('\n') == [
        '\\data\\',
        'ngram 1=5',
        'ngram 2=3',
        '',
        '\\1-grams:',
        '-99\t<s>',
        '-99\t</s>',
        '-99\t<unk>\t-99',
        '-0.30103\ta\t-99',
        '-0.30103\tb\t-99',
        '',
        '\\2-grams:',
        '0\t<unk> a',
        '0\ta b',
        '0\tb a',
        '',
        '\\end\\',
        '',
    ]


def test_a_file_by_hand_is_read(tmp_path, block):
    path = tmp_path / 'model.arpa'
    path.write_text(FILE, encoding='utf-8')
    model, words = arpa.read(path)
    assert words.words == (RARE, 'a', 'b')
    log10 = model.next_word(np.array([[1], [0], [2]])) / np.log(10)
    expected = [[-0.5 - 0.125, -0.3 - 0.125, -0.75], [-0.75, -0.55, -1.25], [-0.5, -0.5, -1]]
    np.testing.assert_allclose(log10, expected, rtol=1e-6)


def test_the_headers_of_lmplz_and_of_kaldi_are_read(tmp_path, block):
    (tmp_path / 'plain').write_text(FILE)
    header = '# Input file: corpus.txt\n#\n\n# Smoothing: Modified Kneser-Ney' + FILE
    (tmp_path / 'other').write_text(header.replace('ngram 1=4', 'ngram  1=     4'))
    (model, words), (expected, _) = (arpa.read(tmp_path / name) for name in ('other', 'plain'))
    assert words.words == (RARE, 'a', 'b')
    contexts = np.arange(3)[:, None]
    np.testing.assert_array_equal(model.next_word(contexts), expected.next_word(contexts))


def test_the_unknown_word_in_capitals_is_the_unknown_word(tmp_path):
    for name, text in (('small', FILE), ('capitals', FILE.replace('<unk>', '<UNK>').replace('a b', 'a <UNK>'))):
        (tmp_path / name).write_text(text if name == 'capitals' else text.replace('a b', 'a <unk>'), encoding='utf-8')
    (model, words), (expected, _) = (arpa.read(tmp_path / name) for name in ('capitals', 'small'))
    assert words.words == (RARE, 'a', 'b')
    contexts = np.arange(3)[:, None]
    np.testing.assert_array_equal(model.next_word(contexts), expected.next_word(contexts))
    assert np.isfinite(model.next_word(contexts)).all()


def test_kenlm_scores_an_unknown_word_in_capitals_alike(tmp_path):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    path = tmp_path / 'model.arpa'
    text = FILE.replace('<unk>', '<UNK>').replace('-99\t<s>', '-99\t<s>\n-99\t</s>').replace('ngram 1=4', 'ngram 1=5')
    path.write_text(text, encoding='utf-8')
    model, _ = arpa.read(path)
    log10 = kenlm.Model(str(path)).score('a zebra', bos=False, eos=False)
    assert log10 == pytest.approx((model.log_p[0][1] + model.next_word(np.array([[1]]))[0, 0]) / np.log(10), abs=1e-6)


def test_a_file_with_both_unknown_words_is_refused(tmp_path, block):
    (tmp_path / 'model.arpa').write_text(FILE.replace('-1\tb', '-1\t<UNK>'), encoding='utf-8')
    with refuses('model.arpa:10'):
        arpa.read(tmp_path / 'model.arpa')


def test_sentence_marks_that_are_used_are_words(tmp_path):
    path = tmp_path / 'model.arpa'
    path.write_text(FILE.replace('a b', '<s> b').replace('-99\t<s>', '-99\t<s>\t-0.5'), encoding='utf-8')
    model, words = arpa.read(path)
    assert words.words == (RARE, 'a', '<s>', 'b')
    log10 = model.next_word(np.array([[2]]))[0] / np.log(10)
    np.testing.assert_allclose(log10, [-1, -0.8, -np.inf, -0.75], rtol=1e-6)


@pytest.mark.parametrize(
    'old, new, message',
    [
        (FILE, '', ':'),
        (FILE, '\n', ':1:'),
        (FILE, 'Lorem ipsum\n', ':1:'),
        ('ngram 2', 'ngram 3', ':4:'),
        ('ngram 2=2', '# a comment\nngram 2=2', ':4:'),
        ('ngram 2=2', 'ngram 2= 2 2', ':4:'),
        ('ngram 1=4', 'ngram 1=5', ':12:'),
        ('ngram 2=2', 'ngram 2=1', ':16:'),
        (
            '-0.75\ta b',
            '-0.75\ta',
            ':13:',
        ),
        (
            '-0.75\ta b',
            'x\ta b',
            ':13:',
        ),
        (
            '-0.75\ta b',
            '0.75\ta b',
            ':13:',
        ),
        (
            '-0.75\ta b',
            'nan\ta b',
            ':13:',
        ),
        ('-0.75\ta b', '-0.75\ta c', ':13:'),
        ('-0.5 b  a', '-0.5 a b', ':14:'),
        ('-1\tb', '-1\ta', ':10:'),
        ('\\end\\', '', ':16:'),
    ],
)
def test_garbage_is_refused_by_its_line(tmp_path, block, old, new, message):
    path = tmp_path / 'model.arpa'
    assert old in FILE
    path.write_text(FILE.replace(old, new), encoding='utf-8')
    with pytest.raises(BadInput) as error:
        arpa.read(path)
    assert str(error.value).startswith(f'{path}{message} ')


NUMBERS = """0 -0 -1 -12 -12. -.5 -0.30103 -1e-05 -99 -2.0278375 -0.0001234567 -4.25E+0 -0.12345678 -0.123456789 -1234.5
-00012 -1.2345678901234567 -0.00000000123456789012 -0.000012345678901234""".split()
NAMES = 'a é \xa0 日\u3000本語 eightlet nineletter nineletters sixteen-letters- sixteen-letters-x -0.5 1 ...'.split(' ')


def varied_file(path, separators):
    """Writes a file with all pairs of words and many number formats."""
    rng = np.random.default_rng(0)
    weights = [*NUMBERS, '0.25', '+0.5', '98.99999999', '']
    pairs = [f'{a}{separators[1]}{b}' for a in NAMES for b in NAMES]
    lines = [f'-1{separators[0]}{name}' for name in NAMES]
    for i, (pair, weight) in enumerate(zip(pairs, rng.choice(weights, len(pairs)))):
        lines.append(
            f'{NUMBERS[i % len(NUMBERS)]}{separators[0]}{pair}' + (f'{separators[0]}{weight}' if weight else '')
        )
    header = f'\\data\\\nngram 1={len(NAMES)}\nngram 2={len(pairs)}\nngram 3=1\n\\1-grams:\n'
    sections = '\n'.join(lines[: len(NAMES)]), '\n'.join(lines[len(NAMES) :])
    body = '\n\\2-grams:\n'.join(sections) + '\n\\3-grams:\n-1\ta é 1\n\\end\\\n'
    path.write_text(header + body, encoding='utf-8')
    return path


@pytest.mark.parametrize('separators', ['\t ', '  ', '\r ', '\t\r'])
def test_blocks_have_the_numbers_of_single_lines(tmp_path, monkeypatch, separators):
    path = varied_file(tmp_path / 'varied.arpa', separators)
    expected, words = arpa.read(path)
    assert expected.table.size(2) == len(NAMES) ** 2
    monkeypatch.setattr(arpa, '_BLOCK', 1)
    parsed, parse = [], BlockParser.parse
    monkeypatch.setattr(BlockParser, 'parse', lambda *args: parsed.append(parse(*args)) or parsed[-1])
    model, same_words = arpa.read(path)
    assert words.words == same_words.words
    for name in ('log_p', 'log_b'):
        for one, other in zip(getattr(model, name), getattr(expected, name), strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(model.table.keys, expected.table.keys, strict=True):
        np.testing.assert_array_equal(one, other)
    num_parsed = sum(block is not None for block in parsed)
    assert num_parsed == (len(NAMES) ** 2 + 1 if separators in ('\t ', '  ') else 1)


def test_only_four_blanks_of_ascii_separate_fields(tmp_path, block):
    path = tmp_path / 'model.arpa'
    path.write_text(re.sub(r'\bb\b', '1\f0', re.sub(r'\ba\b', '\v', FILE)), encoding='utf-8')
    assert arpa.read(path)[1].words == (RARE, '\v', '1\f0')
    path.write_text(re.sub(r'\bb\b', '1\u30000', re.sub(r'\ba\b', '\xa0', FILE)), encoding='utf-8')
    assert arpa.read(path)[1].words == (RARE, '\xa0', '1\u30000')
    for text in ('-0.75\ta b\xa0', '-0.75\xa0a b', '\xa0-0.75\ta b', '-٠.75\ta b', '-0.75\x1fa b', '-0.75\fa b'):
        path.write_text(FILE.replace('-0.75\ta b', text), encoding='utf-8')
        with refuses('model.arpa:13'):
            arpa.read(path)


PLAIN = '-0.5 -1 -0 0 -.5 -2. -1e-3 -1.5E+0 -1e1 -00.5'.split()
NO_NUMBERS = """-0_5 -1_0.5 -٠.5 -５ nan -nan NaN inf infinity -infinity -Infinity -INF -0x1 -1e -1e+ -e5 - -. . --1
-1,5 1/2 -0.5\f -0.5\v -0.5\x1c -0.5f -1e5.0""".replace('\n', ' ').split(' ')


@pytest.mark.parametrize('field', [*PLAIN, '-inf', '0.5', '+0.5', *NO_NUMBERS])
def test_numbers_are_those_that_kenlm_reads(tmp_path, block, field):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    path = tmp_path / 'model.arpa'
    header = '\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1\t<unk>\n-1\t<s>\t-0.5\n-1\t</s>\n'
    for text in (
        f'{header}-1\ta\t-0.3\n\n\\2-grams:\n-0.7\t<s> a\n{field}\ta </s>\n\n\\end\\\n',
        f'{header}{field}\ta\t-0.3\n\n\\2-grams:\n-0.7\t<s> a\n-0.2\ta </s>\n\n\\end\\\n',
        f'{header}-1\ta\t{field}\n\n\\2-grams:\n-0.7\t<s> a\n-0.2\ta </s>\n\n\\end\\\n',
        f'{header}-1\ta\t-0.3\n\n\\2-grams:\n-0.7\t<s> a\n-0.2\ta </s>\t{field}\n\n\\end\\\n',
    ):
        path.write_text(text, encoding='utf-8')
        try:
            expected = kenlm.Model(str(path)).score('a')
        except OSError:
            with pytest.raises(BadInput):
                arpa.read(path, as_kenlm=True)
        else:
            model, words = arpa.read(path, as_kenlm=True)
            begin, a, end = words.encode(['<s>', 'a', '</s>'])
            found = model.next_word(np.array([[begin]]))[0, a] + model.next_word(np.array([[a]]))[0, end]
            assert found / np.log(10) == pytest.approx(expected, rel=1e-6)


def test_an_ngram_whose_beginning_is_missing_is_refused(tmp_path, block):
    path = tmp_path / 'model.arpa'
    longer = FILE.replace('ngram 2=2', 'ngram 2=2\nngram 3=1').replace('\\end\\', '\\3-grams:\n-1\tb b a\n\n\\end\\')
    path.write_text(longer, encoding='utf-8')
    with refuses('model.arpa:18'):
        arpa.read(path)


def test_a_file_without_an_ngram_has_the_rare_word_only(tmp_path):
    path = tmp_path / 'model.arpa'
    path.write_text('\\data\\\nngram 1=0\nngram 2=0\n\\1-grams:\n\\2-grams:\n\\end\\\n', encoding='utf-8')
    model, words = arpa.read(path)
    assert words.words == (RARE,) and np.isneginf(model.next_word(np.array([[0]]))).all()


def large_file(path):
    ngrams = [[f'w{i}' for i in range(400)]]
    ngrams.append([f'{a} {b}' for a in ngrams[0] for b in ngrams[0]])
    sections = [f'\\{k}-grams:\n' + ''.join(f'-2\t{x}\n' for x in order) for k, order in enumerate(ngrams, 1)]
    path.write_text('\\data\\\nngram 1=400\nngram 2=160000\n' + '\n'.join(sections) + '\\end\\\n', encoding='utf-8')
    return path


def test_reading_takes_little_more_memory_than_the_model(tmp_path):
    path = large_file(tmp_path / 'large.arpa')
    tracemalloc.start()
    try:
        model, _ = arpa.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * sum(array.nbytes for array in (*model.table.keys, *model.log_p))


def test_reading_shows_its_progress_in_bytes(tmp_path, monkeypatch):
    path, steps = large_file(tmp_path / 'large.arpa'), []

    @contextlib.contextmanager
    def bar(total, description, unit):
        assert (total, description, unit) == (path.stat().st_size, 'reading large.arpa', ' bytes')
        yield types.SimpleNamespace(update=steps.append)

    monkeypatch.setattr(arpa_files, 'progress_bar', bar)
    arpa.read(path)
    assert len(steps) > 1 and sum(steps) == path.stat().st_size


COMPRESS = {'gz': gzip.compress, 'bz2': bz2.compress, 'xz': functools.partial(lzma.compress, preset=0)}


@pytest.mark.parametrize('suffix', COMPRESS)
def test_a_compressed_file_is_read_whatever_its_name(tmp_path, block, suffix):
    (tmp_path / 'plain.arpa').write_text(FILE)
    (tmp_path / 'packed.arpa').write_bytes(COMPRESS[suffix](FILE.encode()))
    (model, words), (expected, same_words) = (arpa.read(tmp_path / f'{name}.arpa') for name in ('packed', 'plain'))
    assert words == same_words
    contexts = np.arange(3)[:, None]
    np.testing.assert_array_equal(model.next_word(contexts), expected.next_word(contexts))


@pytest.mark.parametrize('suffix', COMPRESS)
def test_a_damaged_or_truncated_compressed_file_is_refused(tmp_path, suffix):
    path = varied_file(tmp_path / 'damaged.arpa', '\t ')
    data = COMPRESS[suffix](path.read_bytes())
    for part in (data[:-30], data[: len(data) // 2], data[:20], data[:40] + bytes(40 * [7]) + data[80:]):
        path.write_bytes(part)
        with pytest.raises(BadInput) as caught:
            arpa.read(path)
        assert caught.value.key.split(':')[0] == str(path)


@pytest.mark.parametrize('suffix', COMPRESS)
def test_a_small_file_of_a_large_text_is_refused_in_little_memory(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(arpa_files, '_FREE_BYTES', 2**16)
    monkeypatch.setattr(arpa_files, '_MAX_LINE', 2**16)
    path, lines = tmp_path / 'model.arpa', b'\\data\\\nngram 1=99999999\n\\1-grams:\n'
    for data in (lines + b'a' * 2**22, lines + b'\n' * 2**20):
        path.write_bytes(COMPRESS[suffix](data))
        tracemalloc.start()
        try:
            with pytest.raises(BadInput):
                arpa.read(path)
            assert tracemalloc.get_traced_memory()[1] < 2**22
        finally:
            tracemalloc.stop()


FOREIGN = {
    'empty': b'',
    'Git LFS pointer': b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n',
    'web page': b'\n<!DOCTYPE html>\n<html><body>404</body></html>\n',
    'binary file of KenLM': b'mmap lm http://kheafield.com/code format version 5\n\0\0\0\x80?',
    'binary file of IRSTLM': b'blmt 3 12 14 9\n',
    'iARPA': b'iARPA\n\n\\data\\\n',
    'zip archive': b'PK\3\4\x14\0\0\0',
    'tar archive': b'lm.arpa'.ljust(257, b'\0') + b'ustar\x0000',
}


@pytest.mark.parametrize('kind', FOREIGN)
def test_a_foreign_file_is_named(tmp_path, kind):
    for data in (FOREIGN[kind], *(compress(FOREIGN[kind]) for compress in COMPRESS.values())):
        (tmp_path / 'model.arpa').write_bytes(data)
        with pytest.raises(BadInput) as caught:
            arpa.read(tmp_path / 'model.arpa')
        assert caught.value.key == str(tmp_path / 'model.arpa')
        assert all(word in caught.value.problem for word in kind.split())


def test_bytes_that_are_not_text_and_a_missing_file(tmp_path):
    path = tmp_path / 'model.arpa'
    path.write_bytes(b'\\data\\\nngram 1=1\n\xff\xfe')
    with refuses('model.arpa:3'):
        arpa.read(path)
    with refuses('none.arpa'):
        arpa.read(tmp_path / 'none.arpa')


@pytest.mark.parametrize('words', [(RARE, 'a', '<s>'), (RARE, 'a'), (RARE, 'a', 'New York'), (RARE, 'a\r', 'b')])
def test_a_vocabulary_that_cannot_be_written_is_refused(tmp_path, words):
    model = unsmoothed.unsmoothed_backoff(counts.count(np.array([1, 2, 1, 2]), Span(0, 4), 2, 3))
    with refuses('model.arpa'):
        arpa.write(model, Vocabulary(words, (0,) * len(words)), tmp_path / 'model.arpa')
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('fit', [kneser_ney.fit_backoff, kneser_ney.fit_modified])
def test_kenlm_reads_it_and_scores_each_word_alike(tmp_path, fit):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    rng = np.random.default_rng(5)
    tokens = np.minimum(rng.geometric(0.1, 3000), 36).astype(np.int32)
    vocabulary = Vocabulary(('<rare>', *(f'w{i}' for i in range(1, 37))), (0, *range(36, 0, -1)))
    model = fit(counts.count(tokens, Span(0, 2500), 3, 37))
    arpa.write(model, vocabulary, tmp_path / 'model.arpa')
    reader, state, log_p = kenlm.Model(str(tmp_path / 'model.arpa')), kenlm.State(), []
    reader.NullContextWrite(state)
    for word in vocabulary.decode(tokens[2490:]):
        state, before = kenlm.State(), state
        log_p.append(reader.BaseScore(before, word, state) * np.log(10))
    np.testing.assert_allclose(model.score(tokens, Span(2490, 3000))[2:], log_p[2:], atol=1e-4)


def test_the_rare_word_symbol_is_no_word_of_a_file(tmp_path):
    (tmp_path / 'file.arpa').write_text(
        FILE.replace('-1	b', f'-1	{RARE}').replace('a b', f'a {RARE}').replace('b  a', f'{RARE} a')
    )
    with refuses('file.arpa'):
        arpa.read(tmp_path / 'file.arpa')
