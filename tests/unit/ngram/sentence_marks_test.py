"""Tests that other tools score sentences like the exported model, and that importing restores the model."""

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring
from nplm_jax.ngram import arpa, counts, kneser_ney, sentence_marks, static_mixture, unsmoothed
from nplm_jax.ngram.quantization import quantize

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

V = 40
WORDS = Vocabulary((RARE, '<text>', '<p>', *(f'w{i}' for i in range(3, V))), (1,) * V)
TRAIN = Span(0, 4000)


def stream():
    """Returns paragraphs that end in a word, in a rare word or without a word."""
    rng = np.random.default_rng(5)
    tokens_T = np.minimum(rng.geometric(0.12, 4000) + 2, V - 1)
    tokens_T[rng.random(4000) < 0.1] = 0
    tokens_T[rng.random(4000) < 0.15] = 2
    tokens_T[:-1][tokens_T[1:] == 2][::50] = 1
    tokens_T[np.flatnonzero(tokens_T == 2)[::30] - 1] = 1
    tokens_T[:2] = 1, 2
    return tokens_T.astype(np.int32)


def count_lines(n):
    """Counts lines of one or two words, which have n-grams of orders 1 to 4."""
    rng = np.random.default_rng(6)
    tokens_T = np.array([2, *(word for _ in range(200) for word in (*rng.integers(3, V, rng.integers(1, 3)), 2))])
    return counts.count(tokens_T, Span(1, len(tokens_T)), n, V, marks=counts.LineMarks(2, None))


MODELS = {
    'plain': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 4, V)),
    'back-off': lambda t: kneser_ney.fit_backoff(counts.count(t, TRAIN, 5, V)),
    'bigram': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 2, V)),
    'pruned': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 4, V), (0, 0, 1, 2)),
    'pruned, in the middle': lambda t: kneser_ney.fit_modified(counts.count(t, Span(10, 3000), 4, V), (0, 1, 2, 3)),
    'quantized': lambda t: quantize(kneser_ney.fit_modified(counts.count(t, TRAIN, 4, V)), 8),
    'pruned and quantized': lambda t: quantize(kneser_ney.fit_modified(counts.count(t, TRAIN, 4, V), (0, 0, 1, 1)), 16),
    'above the longest line': lambda _: kneser_ney.fit_modified(count_lines(6)),
    'above the longest line, back-off': lambda _: kneser_ney.fit_backoff(count_lines(6)),
}
UNIGRAM = {'unigram': lambda t: kneser_ney.fit_modified(counts.count(t, TRAIN, 1, V))}
ZEROS = {'zeros': lambda t: unsmoothed.unsmoothed_backoff(counts.count(t, TRAIN, 3, V))}
SCORED = ('w3 w4 w5 w3', 'w3', 'zzz w3 zzz zzz w7 w9', 'w39 w38 w37 w36 w35', '<text> w3', '', 'w3 w3 zzz')


@pytest.mark.parametrize('name', MODELS)
def test_kenlm_scores_a_sentence_by_default_as_we_score_it_between_two_marks(tmp_path, name):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    model = MODELS[name](stream())
    arpa.write(model, WORDS, tmp_path / 'model.arpa')
    reader = kenlm.Model(str(tmp_path / 'model.arpa'))
    mark = WORDS.ids['<p>']
    lines = [np.append(WORDS.encode(text.split()), mark).astype(np.int32) for text in SCORED]
    for text, line in zip(SCORED, scoring.score(model, lines, LineStart((mark,)))):
        assert reader.score(text) == pytest.approx(line.log10_p_T.sum(), abs=1e-5)
        log10_p, lengths, is_unknown = zip(*reader.full_scores(text))
        np.testing.assert_allclose(log10_p, line.log10_p_T, atol=2e-6)
        assert lengths == tuple(line.lengths_T) and is_unknown == tuple(line.ids_T == 0)
        assert reader.perplexity(text) == pytest.approx(scoring.total([line]).perplexity, rel=1e-5)


@pytest.mark.parametrize('name', MODELS | UNIGRAM | ZEROS)
def test_export_and_import_give_the_same_probabilities_also_across_marks(tmp_path, name):
    model = (MODELS | UNIGRAM | ZEROS)[name](stream())
    arpa.write(model, WORDS, path := tmp_path / 'model.arpa')
    again, words = sentence_marks.merge(path, *arpa.read(path))
    assert words.words == WORDS.words
    assert [again.table.size(k + 1) for k in range(again.n)] == [model.table.size(k + 1) for k in range(again.n)]
    contexts = np.random.default_rng(0).integers(0, V, (200, 4))
    contexts[:100, 1:] = np.lib.stride_tricks.sliding_window_view(stream(), 3)[:100]
    contexts[50:80, 2] = 2
    np.testing.assert_allclose(again.next_word(contexts), model.next_word(contexts), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize('n', [3, 4, 5])
def test_a_model_with_zeros_is_imported_with_the_numbers_of_kenlm(tmp_path, n):
    model = unsmoothed.unsmoothed_backoff(counts.count(stream(), TRAIN, n, V))
    arpa.write(model, WORDS, path := tmp_path / 'model.arpa')
    again, words = sentence_marks.merge(path, *arpa.read(path, as_kenlm=True))
    assert words.words == WORDS.words
    for new_p, log_p in zip(again.log_p, model.log_p):
        np.testing.assert_allclose(new_p, np.maximum(log_p, -99 * np.log(10)), atol=1e-5)


def test_a_vocabulary_with_both_kinds_of_marks_is_not_that_of_a_split_model():
    model = kneser_ney.fit_modified(counts.count(stream(), TRAIN, 2, V))
    words = Vocabulary((*WORDS.words[:-2], '</s>', '<s>'), WORDS.counts)
    assert '<p>' in words.ids and sentence_marks.invert_split(model, words) is None


def test_an_order_without_ngrams_is_in_the_file(tmp_path):
    arpa.write(MODELS['above the longest line'](None), WORDS, tmp_path / 'model.arpa')
    text = (tmp_path / 'model.arpa').read_text()
    assert 'ngram 5=0\nngram 6=0\n' in text and text.endswith('\\5-grams:\n\n\\6-grams:\n\n\\end\\\n')


def test_a_file_has_sentence_marks_and_no_paragraph_mark(tmp_path):
    model = kneser_ney.fit_modified(counts.count(np.array([1, 2, 1, 3, 1, 2]), Span(0, 6), 2, 4))
    arpa.write(model, Vocabulary((RARE, '<p>', 'a', 'b'), (0,) * 4), tmp_path / 'model.arpa')
    lines = [line.split('\t')[:2] for line in (tmp_path / 'model.arpa').read_text().split('\n') if '\t' in line]
    ngrams = [ngram for _, ngram in lines]
    assert ngrams == [
        '<unk>',
        '</s>',
        'a',
        'b',
        '<s>',
        '<unk> </s>',
        'a </s>',
        'b </s>',
        '<s> a',
        '<s> b',
    ]
    assert lines[4][0] == '-99'


def test_a_file_of_another_tool_whose_line_end_begins_ngrams_is_refused(tmp_path):
    arpa.write(MODELS['plain'](stream()), WORDS, path := tmp_path / 'model.arpa')
    text = path.read_text()
    line = next(line for line in text.split('\n') if '\t<s> w3\t' in line)
    path.write_text(text.replace(line, line.replace(line.split('\t')[0], '-0.5')))
    with refuses('model.arpa'):
        sentence_marks.merge(path, *arpa.read(path))


def test_a_vocabulary_without_paragraph_mark_has_no_sentences():
    model = kneser_ney.fit_modified(counts.count(stream(), TRAIN, 2, V))
    words = Vocabulary(tuple(f'w{i}' for i in range(V)), (0,) * V)
    assert sentence_marks.split(model, words) == (model, words)


SENTENCES = r"""
\data\
ngram 1=5
ngram 2=5
ngram 3=2

\1-grams:
-1	<unk>	0
0	<s>	-0.3
-0.5	</s>
-0.4	a	-0.2
-0.6	b	-0.1

\2-grams:
-0.2	<s> a	-0.4
-0.7	a </s>
-0.3	a b	-0.6
-0.9	b a	-0.05
-1.5	<s> </s>

\3-grams:
-0.15	<s> a b
-0.25	b a </s>

\end\
"""


def merged(tmp_path, text=SENTENCES):
    (tmp_path / 'model.arpa').write_text(text, encoding='utf-8')
    return sentence_marks.merge(tmp_path / 'model.arpa', *arpa.read(tmp_path / 'model.arpa'))


def test_sentence_marks_become_the_paragraph_mark(tmp_path):
    model, words = merged(tmp_path)
    assert words.words == (RARE, '<p>', 'a', 'b')
    log10 = model.next_word(np.array([[3, 1], [1, 2], [2, 3], [3, 2]])) / np.log(10)  # b <p>, <p> a, a b, b a
    expected = [
        [-0.3 - 1, -1.5, -0.2, -0.3 - 0.6],  # after b </s> a sentence begins
        [-0.4 - 0.2 - 1, -0.4 - 0.7, -0.4 - 0.2 - 0.4, -0.15],
        [-0.6 - 0.1 - 1, -0.6 - 0.1 - 0.5, -0.6 - 0.9, -0.6 - 0.1 - 0.6],
        [-0.05 - 0.2 - 1, -0.25, -0.05 - 0.2 - 0.4, -0.05 - 0.3],
    ]
    np.testing.assert_allclose(log10, expected, atol=1e-6)


def test_a_highest_order_without_ngrams_stays_empty(tmp_path):
    text = SENTENCES.replace('0\t<s>\t-0.3\n', '').replace('-0.1\n', '-0.1\n0\t<s>\t-0.3\n')  # `<s>` comes last
    text = text.replace('ngram 3=2', 'ngram 3=0').replace('-0.15\t<s> a b\n', '').replace('-0.25\tb a </s>\n', '')
    model, words = merged(tmp_path, text)
    assert words.words == (RARE, '<p>', 'a', 'b') and model.table.size(3) == 0
    log10 = model.next_word(np.array([[1, 2], [3, 2]]))[:, 3] / np.log(10)  # b after <p> a and b a
    np.testing.assert_allclose(log10, [-0.4 - 0.3, -0.05 - 0.3], atol=1e-6)


def test_a_file_without_used_sentence_marks_stays_as_it_is(tmp_path):
    text = '\\data\\\nngram 1=4\n\\1-grams:\n-0.3\ta\n-99\t<s>\n-0.3\tb\n-99\t</s>\n\\end\\\n'
    model, words = merged(tmp_path, text)
    assert words.words == (RARE, 'a', 'b') and model.n == 1


def test_the_weight_of_a_mark_that_begins_no_ngram_applies_after_it(tmp_path):
    unigrams = '-1\t<unk>\n-99\t<s>\t-0.4\n-0.5\t</s>\n-0.6\ta\t-0.2\n'
    header = '\\data\\\nngram 1=4\nngram 2=1\n'
    model, words = merged(tmp_path, f'{header}\\1-grams:\n{unigrams}\\2-grams:\n-0.1\ta </s>\n\\end\\\n')
    assert words.words == (RARE, '<p>', 'a')
    np.testing.assert_allclose(model.next_word(np.array([[1]]))[0] / np.log(10), [-1.4, -0.9, -1], atol=1e-6)


@pytest.mark.parametrize(
    'old, new, message',
    [
        ('a b\t-0.6', 'a <s>\t-0.6', '<s> ends a 2-gram'),
        ('b a\t-0.05', '</s> a\t-0.05', '</s> stands before a word'),
    ],
)
def test_marks_that_cannot_become_one_are_refused(tmp_path, old, new, message):
    text = SENTENCES.replace(old, new).replace('<s> a b', '<s> a a').replace('b a </s>', 'a </s> b')
    with refuses('model.arpa'):
        merged(tmp_path, text)


def test_what_follows_a_mark_in_the_file_of_a_mixture_is_the_mixture_of_the_files(tmp_path):
    tokens_T = stream()
    tokens_T[500:502] = 0, 2  # only one model has unknown words before a mark
    models = [
        kneser_ney.fit_modified(counts.count(tokens_T, Span(0, 1500), 4, V)),
        kneser_ney.fit_modified(counts.count(tokens_T, TRAIN, 2, V)),
    ]
    begin = sentence_marks.line_beginnings(models, WORDS)
    mixed = static_mixture.interpolate([*models, *begin], [0.3, 0.7, *[0.0] * len(begin)])
    mark, texts = WORDS.ids['<p>'], [f'w{i} w{j}' for i in range(3, 30) for j in (3, 4, 5)]
    lines = [WORDS.encode(text.split()) for text in texts]
    split, words = sentence_marks.split(mixed, WORDS)
    first = words.ids['<s>']
    log_p = [split.score(np.array([first, *line]), Span(1, 3)) for line in lines]
    nodes = [split.table.nodes(np.array([first, *line]), 3) for line in lines]
    of_models = [
        np.stack([line.log10_p_T for line in scoring.score(model, lines, LineStart((mark,)))]) for model in models
    ]
    expected = np.log(0.3 * 10 ** of_models[0] + 0.7 * 10 ** of_models[1])
    compared = [(p[k], e[k]) for p, e, x in zip(log_p, expected, nodes) for k in (0, 1) if x[k + 2][k + 1] >= 0]
    assert len(compared) > 40
    np.testing.assert_allclose(*zip(*compared), atol=1e-5)
