"""Compares line-by-line counting with KenLM's lmplz, and tests the properties of the resulting models."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from helpers import ESTIMATED, refuses

from configs import sentences
from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.data import brown, vocabulary
from nplm_jax.data.line_start import LineStart
from nplm_jax.inference import scoring
from nplm_jax.inference.perplexity import evaluate, perplexity
from nplm_jax.kenlm.model import Model
from nplm_jax.ngram import arpa, lines, sentence_marks
from nplm_jax.runs import estimation, experiment, loading
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

# The test perplexity (including unknown words) and the numbers of n-grams of orders 1, 2, ... according to KenLM's
# programs, built from kpu/kenlm at 4cb443e, on the three files that `brown_lines` writes:
#     lmplz -o ORDER [--prune PRUNE] < train.txt > lm.arpa; query -v summary lm.arpa < test.txt
LMPLZ = {
    (3, '0'): (699.0552282970796, (24712, 133828, 210190)),
    (5, '0'): (695.9209788649662, (24712, 133828, 210190, 226165, 220594)),
    (3, '0 0 1'): (698.7995634846906, (24712, 133828, 15093)),
    (5, '0 0 1'): (696.6271829573919, (24712, 133828, 15093, 4805, 1500)),
    (4, '0 1 2'): (727.4203395707144, (24712, 26420, 5398, 1138)),
}
AS_IT_IS = {
    'corpus.tokens': 'whitespace',
    'corpus.lowercase': False,
    'corpus.split_possessive': False,
    'corpus.min_count': 1,
    'corpus.count_over': 'train',
    'corpus.paragraphs': 'lines',
}
FAMILIES = ('modified_kneser_ney', 'kneser_ney', 'backoff')
VARIANTS = [
    ('modified_kneser_ney', {}),
    ('modified_kneser_ney', {'model.n': 2}),
    ('modified_kneser_ney', {'model.prune': '0 0 1'}),
    ('modified_kneser_ney', {'model.prune_entropy': 1e-4}),
    ('modified_kneser_ney', {'model.bits': 16}),
    ('kneser_ney', {}),
    ('kneser_ney', {'model.prune_entropy': 1e-4}),
    ('backoff', {}),
]


def settings_for(family, folder, **changes):
    """Returns the settings of a model of order 4 for the files train.txt, valid.txt and test.txt in a folder."""
    paths = {f'corpus.{key}': str(folder / f'{name}.txt') for key, name in FILES.items()}
    chosen = {'model.family': family, 'model.n': 4, **AS_IT_IS, **paths, **changes}
    return config_lib.override(text_config.get_config('modified_kneser_ney_5'), chosen)


FILES = {'path': 'train', 'valid_path': 'valid', 'test_path': 'test'}


def write_lines(folder, parts):
    for name, part in zip(FILES.values(), parts):
        (folder / f'{name}.txt').write_text('\n'.join(part) + '\n')


@pytest.fixture(scope='module')
def brown_lines(tmp_path_factory):
    """The first 300,000 words of Brown, one sentence per line: 80% of the lines for training, 10% each for the rest."""
    folder = tmp_path_factory.mktemp('brown')
    try:
        texts = brown.texts()
    except BadInput as error:
        pytest.skip(str(error))
    sentences = [' '.join(line.split()) for text in texts for line in text.splitlines() if line.strip()]
    words = np.cumsum([sentence.count(' ') + 1 for sentence in sentences])
    chosen = sentences[: int(np.searchsorted(words, 300_000)) + 1]
    stops = [0, int(len(chosen) * 0.8), int(len(chosen) * 0.9), len(chosen)]
    write_lines(folder, [chosen[start:stop] for start, stop in itertools.pairwise(stops)])
    return folder


@pytest.fixture(scope='module')
def small(tmp_path_factory):
    """A text of short lines whose words depend on the preceding word, with few different first and last words."""
    folder = tmp_path_factory.mktemp('small')
    rng = np.random.default_rng(3)
    texts = []
    for _ in range(600):
        words = [int(rng.integers(3))]
        while len(words) < 3 or rng.random() < 0.8:
            words.append((words[-1] * 2 + int(rng.zipf(1.5))) % 40)
        texts.append(' '.join(f'w{i}' for i in words))
    write_lines(folder, (texts[:480], texts[480:540], texts[540:]))
    return folder


def prepare(config, folder=None):
    """Returns the settings, the corpus as the run reads it, and the model."""
    settings = experiment.load_settings(config)
    data = loading.load_dataset(settings)
    return settings, data, estimation.estimate(settings, data, folder)


@pytest.mark.parametrize('order, prune', LMPLZ)
def test_perplexity_and_table_are_those_of_lmplz(brown_lines, order, prune):
    config = settings_for('modified_kneser_ney', brown_lines, **{'model.n': order, 'model.prune': prune})
    _, data, model = prepare(config)
    expected, sizes = LMPLZ[order, prune]
    found = perplexity(model, data.tokens_T, data.test)
    assert found == pytest.approx(expected, rel=2e-7) and f'{found:.5g}' == f'{expected:.5g}'
    table = sentence_marks.split(model, data.vocabulary)[0].table
    assert (table.size(1) - 1, *(table.size(k) for k in range(2, order + 1))) == sizes  # <text> is a word here


@pytest.mark.parametrize('family, changes', VARIANTS)
def test_nothing_before_a_line_has_an_influence_and_all_sums_are_one(small, family, changes):
    _, data, model = prepare(settings_for(family, small, **changes))
    line, text, _ = lines.marks_of(data)
    assert line in data.tokens_T and text not in data.tokens_T
    starts = np.flatnonzero(data.tokens_T == line)
    held_out = [data.tokens_T[a : b + 1] for a, b in itertools.pairwise(starts) if a + 1 >= data.test.start]
    assert len(held_out) == 60 and sum(len(x) - 1 for x in held_out) == len(data.test)
    alone = [log_p[1:] for log_p in model.score_lines(held_out)]
    np.testing.assert_array_equal(np.concatenate(alone), model.score(data.tokens_T, data.test))
    contexts = np.lib.stride_tricks.sliding_window_view(data.tokens_T[:500], 3)
    log_p_BxV = model.next_word(contexts).astype(np.float64)
    np.testing.assert_allclose(np.exp(log_p_BxV).sum(1), 1, atol=1e-6)
    assert np.isneginf(log_p_BxV[:, text]).all()


def test_the_words_of_the_splits_stay_and_each_line_has_one_end(small):
    settings = experiment.load_settings(settings_for('kneser_ney', small))
    stream = loading.load_stream(settings)
    data = estimation.read(settings, stream)
    marks = [data.vocabulary.ids['<p>'], data.vocabulary.ids['<text>']]
    for split, num_lines in (('train', 480), ('valid', 60), ('test', 60)):
        (before, after), sizes = [
            (x.tokens_T[x.splits[split].start : x.splits[split].stop] for x in (stream, data)),
            (stream.sizes[split], data.sizes[split]),
        ]
        np.testing.assert_array_equal(before[~np.isin(before, marks)], after[~np.isin(after, marks)])
        assert (after == marks[0]).sum() == num_lines and after[-1] == marks[0]
        assert sizes[1].tokens == len(after) and sizes[1].words == sizes[0].words
        assert sizes[0].utf8_bytes - sizes[1].utf8_bytes == 1  # <text>
    assert data.tokens_T[0] == marks[0] and data.train.start == 1


@pytest.mark.parametrize('family, changes', VARIANTS)
def test_score_kenlm_and_the_exported_file_give_one_number(small, tmp_path, family, changes):
    config = settings_for(family, small, **changes)
    experiment.run(config, tmp_path / 'run')
    loaded = loading.load(tmp_path / 'run')
    known, model = loaded.vocabulary, loaded.model
    arpa.write(model, known, tmp_path / 'model.arpa')
    again, words = sentence_marks.merge(tmp_path / 'model.arpa', *arpa.read(tmp_path / 'model.arpa'))
    readers = Model(tmp_path / 'run'), Model(tmp_path / 'model.arpa')
    texts = ['w1 w3', 'w2', 'w1 w4 w9 w21 w3', 'w0 unknown w5']
    ids = [np.append(known.encode(text.split()), known.ids['<p>']) for text in texts]
    scored = scoring.score(model, ids, LineStart.of(known))
    for text, line in zip(texts, scored):
        total = max(line.log10_p_T.sum(), -900)
        if total > -99:
            assert [reader.score(text) for reader in readers] == pytest.approx([total] * 2, abs=1e-5)
            assert [x[1] for x in readers[1].full_scores(text)] == line.lengths_T.tolist()
    in_file = [word if word != '<p>' else '</s>' for word in known.words[1:]]
    assert set(readers[1].vocabulary) == {'<unk>', '<s>', *in_file}
    text = [' '.join(known.decode(x)) for x in ids]
    again_ids = [words.encode(x.split()) for x in text]
    for line, other in zip(scored, scoring.score(again, again_ids, LineStart((words.ids['<p>'],)))):
        np.testing.assert_allclose(other.log10_p_T, line.log10_p_T, atol=2e-6)


def test_auto_reads_lines_where_paragraphs_are_lines_and_the_family_can(small):
    for context, paragraphs, expected in (
        ('auto', 'lines', True),
        ('auto', 'blank_lines', False),
        ('stream', 'lines', False),
        ('line', 'blank_lines', True),
    ):
        changes = {'corpus.context': context, 'corpus.paragraphs': paragraphs}
        settings = experiment.load_settings(settings_for('kneser_ney', small, **changes))
        assert estimation.reads_lines(settings, loading.load_stream(settings)) == expected
        assert loading.load_dataset(settings).by_lines == expected
    for family in (*set(ESTIMATED) - set(FAMILIES), 'nplm'):
        settings = experiment.load_settings(settings_for(family, small, **{'model.n': 3}))
        data = loading.load_dataset(settings)
        assert data.has_lines and not estimation.reads_lines(settings, data) and estimation.read(settings, data) is data


@pytest.mark.parametrize('family', ['classes', 'interpolated', 'add_delta', 'maximum_likelihood'])
def test_a_family_that_reads_a_stream_refuses_lines(family):
    config = config_lib.override(sentences.get_config(), {'model.family': family, 'corpus.context': 'line'})
    with refuses('corpus.context'):
        experiment.load_settings(config)


@pytest.mark.parametrize('changes', [{'corpus.boundary_tokens': False}, {'corpus.tokens': 'characters'}])
def test_lines_need_marks(changes):
    config = config_lib.override(
        sentences.get_config(), {'model.family': 'kneser_ney', 'corpus.context': 'line', **changes}
    )
    with refuses('corpus.context'):
        experiment.load_settings(config)


def test_lines_need_their_mark_in_the_vocabulary(small):
    settings = experiment.load_settings(settings_for('kneser_ney', small))
    with refuses('corpus.context'):
        estimation.read(
            settings, dataclasses.replace(loading.load_stream(settings), vocabulary=vocabulary.numbered(40))
        )


def test_a_model_of_lines_is_mixed_with_one_of_the_stream(small, tmp_path, lines):
    for name, family, context in (
        ('line', 'kneser_ney', 'auto'),
        ('stream', 'kneser_ney', 'stream'),
        ('delta', 'add_delta', 'auto'),
    ):
        experiment.run(settings_for(family, small, **{'corpus.context': context}), tmp_path / name)
    lines()
    cli.main(['mix', *(f'{tmp_path}/{name}' for name in ('delta', 'line', 'stream'))])
    rows = {line.split('|')[1].strip(): line.split('|') for line in lines()[0][2:]}
    model = loading.load(tmp_path / 'line').model
    data = loading.load_dataset(tmp_path / 'line')  # as the run reads it
    assert data.by_lines and not loading.load_dataset(tmp_path / 'stream').by_lines
    assert loading.prepare_recorded(loading.load(tmp_path / 'line').settings, tmp_path / 'line').by_lines
    assert float(rows['line'][3]) == pytest.approx(evaluate(model, data.tokens_T, data.test).perplexity, abs=0.06)
    assert float(rows['mixed, learned'][2]) <= float(rows['line'][2])


WORDS_OF_LMPLZ = ('a', 'b', 'e\u0301', '\u00e9', 'x\u00a0y', '\u3000', '\u2028', 'z\x1cz', '\u0085', 'B')


@pytest.mark.parametrize('order, expected', [(3, 5.180667817245714), (5, 2.726354571766294)])
def test_the_preset_lmplz_has_the_words_and_empty_lines_of_lmplz(tmp_path, order, expected):
    """The perplexity equals that of `lmplz --discount_fallback` and `query` on the same file. See LMPLZ."""
    rng, weights = random.Random(1), [9, 7, 5, 4, 3, 3, 2, 2, 1, 1]
    text = [' '.join(rng.choices(WORDS_OF_LMPLZ, weights, k=rng.choice([0, 1, 2, 3, 5, 8]))) for _ in range(40)]
    text = '\n'.join(text).replace('a b', 'a\t b\r', 3)
    (tmp_path / 'text.txt').write_text(text, newline='')
    paths = dict.fromkeys(('corpus.path', 'corpus.valid_path', 'corpus.test_path'), str(tmp_path / 'text.txt'))
    _, data, model = prepare(config_lib.override(text_config.get_config('lmplz'), {**paths, 'model.n': order}))
    assert perplexity(model, data.tokens_T, data.test) == pytest.approx(expected, rel=2e-7)
    assert score_ends(model, data.vocabulary, text) == pytest.approx(expected, rel=2e-7)
    assert {*data.vocabulary.words} == {'<rare>', '<text>', '<p>', *WORDS_OF_LMPLZ}


@pytest.mark.parametrize(
    'changes',
    [{'corpus.paragraphs': 'blank_lines'}, {'corpus.name': 'brown', 'corpus.path': '', 'corpus.paragraphs': 'auto'}],
)
def test_words_of_lmplz_are_of_a_text_with_a_sentence_a_line(changes):
    with pytest.raises(BadInput) as caught:
        experiment.load_settings(config_lib.override(text_config.get_config('lmplz'), {'corpus.path': 'x', **changes}))
    assert caught.value.key == 'corpus.tokens' and caught.value.value == 'lmplz'


def score_ends(model, known, text):
    """Returns the perplexity that `nplm score --end` prints."""
    ids = [np.append(known.encode(known.tokenize(line)), known.ids['<p>']) for line in text.split('\n')]
    return scoring.total(scoring.score(model, ids, LineStart.of(known))).perplexity


RARE_MARKS = 'b b a c\na b\nb a b\na d\nb a a b\n'  # `<text>` occurs once, and each word but two


@pytest.mark.parametrize('family', ESTIMATED)
@pytest.mark.parametrize('context', ['auto', 'line', 'stream'])
def test_a_text_has_one_perplexity_whatever_words_are_rare(tmp_path, family, context):
    (tmp_path / 'train.txt').write_text(RARE_MARKS)
    held_out = 'a b c\nb\nb e a\n'
    (tmp_path / 'valid.txt').write_text(held_out)
    (tmp_path / 'same.txt').write_text(RARE_MARKS)
    reads_lines = context != 'stream' and family in FAMILIES
    if context == 'line' and not reads_lines:
        return  # rejected: see below
    for min_count, max_vocabulary in itertools.product((1, 2, 3), (0, 5)):
        # In a stream, the words before a text have an influence, as the three texts form one text.
        valid = 'valid' if reads_lines else 'same'
        paths = {'corpus.valid_path': f'{tmp_path}/{valid}.txt', 'corpus.test_path': f'{tmp_path}/{valid}.txt'}
        counts = {'corpus.min_count': min_count, 'corpus.max_vocabulary': max_vocabulary, 'corpus.context': context}
        (tmp_path / 'test.txt').write_text('')
        classes = {'model.classes': 3} if family == 'classes' else {}
        changes = {'model.n': 3, **counts, **paths, **classes}
        _, data, model = prepare(settings_for(family, tmp_path, **changes), tmp_path)
        assert {'<text>', '<p>', 'a', 'b'} <= data.vocabulary.ids.keys()
        assert max_vocabulary == 0 or len(data.vocabulary) <= max_vocabulary
        assert data.by_lines == reads_lines
        valid_perplexity = perplexity(model, data.tokens_T, data.valid)
        assert perplexity(model, data.tokens_T, data.test) == pytest.approx(valid_perplexity, rel=1e-12)
        if reads_lines:
            expected = valid_perplexity
            assert score_ends(model, data.vocabulary, held_out.rstrip()) == pytest.approx(expected, rel=1e-6)
            line = data.vocabulary.ids['<p>']
            ends = (data.tokens_T[data.test.start : data.test.stop] == line).sum()
            assert ends == len(held_out.splitlines()) and len(data.test) == 10
            assert (data.tokens_T == data.vocabulary.ids['<text>']).sum() == 0


@pytest.mark.parametrize('min_count', [1, 2, 3])
def test_unknown_words_have_no_ngrams_where_no_word_is_rare(tmp_path, min_count):
    rng = random.Random(3)
    names = [['Ada', 'Ben', 'Carl', 'Dora'], ['Bauer', 'Huber', 'Wagner', 'Schmidt', 'Klein']]
    text = ''.join(f'{rng.choice(names[0])} {rng.choice(names[1])}\n' for _ in range(300))
    (tmp_path / 'text.txt').write_text(text)
    paths = dict.fromkeys(('corpus.path', 'corpus.valid_path', 'corpus.test_path'), str(tmp_path / 'text.txt'))
    changes = {**paths, 'model.n': 3, 'corpus.min_count': min_count}
    _, data, model = prepare(config_lib.override(text_config.get_config('lmplz'), changes))
    for order in (2, 3):
        words = np.stack([model.table.prefixes(order), model.table.keys[order - 1] % len(data.vocabulary)])
        assert (words[-1] != 0).all() and (order > 2 or (words[0] != 0).all())
    start = LineStart.of(data.vocabulary)
    (line,) = scoring.score(model, [np.array([0, 0, data.vocabulary.ids['<p>']])], start)  # xx yy
    assert line.log10_p_T.sum() == pytest.approx(-5.43295145, abs=2e-6)  # from lmplz and query


def test_a_context_that_every_word_of_the_lines_follows_backs_off_to_nothing(tmp_path):
    pairs = [' '.join(pair) for pair in itertools.product(('a', 'b', '<unk>'), repeat=2)]
    write_lines(tmp_path, [[*pairs, 'a', 'b', '<unk>']] * 3)
    _, data, model = prepare(settings_for('kneser_ney', tmp_path, **{'model.n': 2}))
    assert np.isfinite(model.log_b[0]).all()
    log_p_BxV = model.next_word(np.array([[data.vocabulary.ids[word]] for word in ('a', 'b', '<rare>')]))
    np.testing.assert_allclose(np.exp(log_p_BxV).sum(1), 1, atol=1e-6)
