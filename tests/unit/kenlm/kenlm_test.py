"""Compares KenLM's interface with hand calculations, with KenLM itself and with `nplm score`."""

import copy
import dataclasses
import importlib.util
import io
import itertools
import json
import pickle
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from helpers import ROOT, make_model, refuses, write_arpa
from language_runs import make_runs
from texts import GERMAN, repeated

import nplm_jax
from configs import sentences
from configs import text as text_config
from nplm_jax import kenlm
from nplm_jax.config import settings as config_lib
from nplm_jax.kenlm import model as kenlm_model
from nplm_jax.kenlm.readers import NetworkReader, NgramReader
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramTable
from nplm_jax.runs import experiment, loading
from nplm_jax.utils.errors import BadInput

pytestmark = [
    pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning'),
    pytest.mark.filterwarnings('ignore:.* of the words are unknown'),
]

# A positive back-off weight, one of zero, none; `and snow` is not an n-gram although one ends in it; <unk> in contexts.
WEATHER = """
\\data\\
ngram 1=12
ngram 2=12
ngram 3=8
ngram 4=3

\\1-grams:
-1.5	<unk>	-2
-99	<s>	-0.4
-0.9	</s>
-0.8	rain	-0.3
-0.7	and	-0.5
-1	wind	-0.2
-1.1	snow	0
-1.2	fog
-1.3	hail	-0.25
-1.4	sun	3
-2	ice	-0.1
-2	dew	-0.1

\\2-grams:
-0.5	<s> rain	-0.35
-0.3	rain and	-0.45
-0.4	and wind	-0.1
-0.25	wind </s>
-2.5	<unk> <unk>	-1
-2.2	<unk> and	-0.15
-1.9	hail sun	-0.6
-0.6	and fog
-1	ice dew	-0.1
-1	dew ice	-0.1
-1	ice ice	-0.1
-1	dew dew	-0.1

\\3-grams:
-0.15	<s> rain and	-0.55
-0.12	rain and wind	-0.65
-0.85	rain and snow	-0.05
-2.1	<unk> and <unk>	-0.7
-1	ice dew ice
-1	dew ice dew
-1	ice ice ice
-1	dew dew dew

\\4-grams:
-0.02	<s> rain and wind
-0.07	rain and wind </s>
-0.95	rain and snow hail

\\end\\
"""
# N-grams whose last words are not an n-gram. KenLM counts these last words as n-grams, in lengths and in states.
GAPS = ('-0.85\train and snow\t-0.05\n', '-2.1\t<unk> and <unk>\t-0.7\n', '-0.95\train and snow hail\n')
# Successive words with log10 P, the length of the n-gram, and the length of KenLM's state after the word.
BEGIN, NULL = True, False
BY_HAND = {
    'the longest n-gram': (
        BEGIN, [('rain', -0.5, 2, 2), ('and', -0.15, 3, 3), ('wind', -0.02, 4, 3), ('</s>', -0.07, 4, 0)],
    ),
    'the weights of all contexts': (BEGIN, [('rain', -0.5, 2, 2), ('fog', -1.2 - 0.35 - 0.3, 1, 0)]),
    'a word that never begins': (BEGIN, [('snow', -1.1 - 0.4, 1, 0)]),
    'an unknown word': (BEGIN, [('zebra', -1.5 - 0.4, 1, 1), ('rain', -0.8 - 2, 1, 1)]),
    'two unknown words': (NULL, [('x', -1.5, 1, 1), ('y', -2.5, 2, 2), ('z', -2.5 - 1, 2, 2)]),
    'around an unknown word': (NULL, [('x', -1.5, 1, 1), ('and', -2.2, 2, 2), ('y', -2.1, 3, 3), ('fog', -3.9, 1, 0)]),
    'over what is no n-gram': (
        NULL, [('rain', -0.8, 1, 1), ('and', -0.3, 2, 2), ('snow', -0.85, 3, 3), ('hail', -0.95, 4, 1)],
    ),
    'after what is no n-gram': (
        NULL, [('rain', -0.8, 1, 1), ('and', -0.3, 2, 2), ('snow', -0.85, 3, 3), ('wind', -1.05, 1, 1)],
    ),
    'positive weights': (NULL, [('hail', -1.3, 1, 1), ('sun', -1.9, 2, 2), ('rain', -0.8 + 3 - 0.6, 1, 1)]),
}  # fmt: skip


@pytest.fixture
def weather(tmp_path):
    (tmp_path / 'weather.arpa').write_text(WEATHER)
    return kenlm.Model(tmp_path / 'weather.arpa')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """Two networks (one of unlimited order) and count-based models with the same words, and models with other words."""
    root = tmp_path_factory.mktemp('runs')
    counts = {'model.family': 'modified_kneser_ney', 'model.n': 3}
    kinds = {
        'network': {'train.epochs': 5},
        'lstm': {'model.family': 'lstm', 'model.m': 8, 'model.h': 8, 'model.bptt_length': 4, 'train.epochs': 2},
        'counts': counts,
        'quantized': {**counts, 'model.bits': 8},
        'interpolated': {'model.family': 'interpolated', 'model.n': 3},
        'unmarked': {**counts, 'corpus.boundary_tokens': False},
    }
    for name, changes in kinds.items():
        experiment.run(config_lib.override(sentences.get_config(), changes), root / name)
    (root / 'text').write_text(repeated(GERMAN), encoding='utf-8')
    config = config_lib.override(text_config.get_config(), {**counts, 'corpus.tokens': 'characters'})
    config.corpus.path = str(root / 'text')
    experiment.run(config, root / 'characters')
    return root


def begin(model):
    state = kenlm.State()
    model.BeginSentenceWrite(state)
    return state


def after(model, words, state=None):
    """Returns the state after words; by default they start a sentence."""
    state = begin(model) if state is None else state
    for word in words:
        before, state = state, kenlm.State()
        model.BaseScore(before, word, state)
    return state


def total_of_score(nplm_command, monkeypatch, text, *arguments):
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
    return json.loads('\n'.join(nplm_command('score', *arguments, '--json')[0]))['lines'][0]


@pytest.mark.parametrize('name', ['<s>', '</s>', '<unk>', '<UNK>'])
def test_a_run_whose_text_has_the_name_of_a_mark_as_a_word_is_refused(runs, monkeypatch, name):
    for run in ('counts', 'network', 'unmarked'):
        loaded = loading.load(runs / run)
        vocabulary = loaded.vocabulary
        words = dataclasses.replace(vocabulary, words=(*vocabulary.words[:-1], name))
        changed = dataclasses.replace(loaded, vocabulary=words)
        with monkeypatch.context() as patched, pytest.raises(BadInput) as caught:
            patched.setattr(loading, 'load', lambda _, found=changed: found)
            kenlm.Model(runs / run)
        assert caught.value.key == str(runs / run) and repr(name) in caught.value.problem


@pytest.mark.parametrize('name', ['<s>', '</s>', '<unk>'])
def test_a_token_of_a_lossless_tokenizer_may_have_the_name_of_a_mark(runs, monkeypatch, name):
    loaded = loading.load(runs / 'characters')
    vocabulary = loaded.vocabulary
    words = dataclasses.replace(vocabulary, words=(*vocabulary.words[:-1], name))
    expected = kenlm.Model(runs / 'characters').score('der Hund')
    monkeypatch.setattr(loading, 'load', lambda _: dataclasses.replace(loaded, vocabulary=words))
    reader = kenlm.Model(runs / 'characters')
    assert reader.score('der Hund') == expected and len({*reader.vocabulary}) == len(words)
    mixed = kenlm.Model([runs / 'characters', runs / 'characters'])
    assert mixed.score('der Hund') == pytest.approx(expected) and len(mixed.vocabulary) == len(words)


# --- ARPA files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', BY_HAND)
def test_words_by_hand(weather, name):
    begins, words = BY_HAND[name]
    state, out = kenlm.State(), kenlm.State()
    (weather.BeginSentenceWrite if begins else weather.NullContextWrite)(state)
    for word, log10_p, length, state_length in words:
        found = weather.BaseFullScore(state, word, out)
        assert found == (pytest.approx(log10_p, abs=1e-6), length, word in 'xyz' or word == 'zebra')
        assert weather.BaseScore(state, word, out) == found.log_prob
        assert len(out._reader.words(out._context)) == state_length
        assert weather.next_words([state])[0, weather._id(word)] == pytest.approx(log10_p, abs=1e-6)
        state, out = out, kenlm.State()


def test_a_sentence_is_the_sum_of_its_words(weather):
    text = 'rain and wind'
    parts = list(weather.full_scores(text))
    assert [length for _, length, _ in parts] == [2, 3, 4, 4] and not any(oov for *_, oov in parts)
    assert weather.score(text) == pytest.approx(-0.5 - 0.15 - 0.02 - 0.07, abs=1e-6)
    assert weather.score(text, eos=False) == pytest.approx(-0.67, abs=1e-6)
    assert weather.score(text, bos=False) == pytest.approx(-0.8 - 0.3 - 0.12 - 0.07, abs=1e-6)
    assert weather.score('wind </s>', bos=False, eos=False) == weather.score('wind', bos=False)
    assert weather.score(b'rain\tand  wind\n') == weather.score(text) != weather.score('rain\u00a0and wind')
    assert weather.perplexity(text) == pytest.approx(10 ** (0.74 / 4), rel=1e-6)
    assert weather.score('') == pytest.approx(-0.9 - 0.4, abs=1e-6)
    assert [oov for *_, oov in weather.full_scores('rain zebra')] == [False, True, False]


def test_segmented_sentences_are_scored_without_their_spaces(tmp_path):
    model = kenlm.Model(make_runs(tmp_path, ['bytes']) / 'bytes')
    assert model.score('人人 生而 自由') == model.score('人人生而自由')
    (line,) = model.score_lines(['人人 生而'])
    assert line.log10_p_T.sum() == pytest.approx(model.score('人人生而'))
    assert model.score('a b') != model.score('ab')  # other scripts keep their spaces


LINES = ('rain and wind', '', 'rain zebra', 'x y z', b'hail sun rain', 'rain and snow hail', 'ice dew ice', '', 'fog')


@pytest.mark.parametrize('eos', [True, False])
@pytest.mark.parametrize(
    'texts, share',
    [
        (['甚至出现交易停滞的情况'], '100.0%'),  # not segmented: one word
        (['rain and snow zebra'] * 25, '25.0%'),
        (['rain and snow zebra'] * 24, ''),
        (['甚至出现'] * 200, '100.0%'),
        (['rain and snow and hail'] * 30, ''),
        ([''], ''),
    ],
)
@pytest.mark.parametrize('at_once', [True, False])
def test_too_many_unknown_words_cause_one_warning(tmp_path, texts, share, eos, at_once):
    (tmp_path / 'lm.arpa').write_text(WEATHER)
    model = kenlm.Model(tmp_path / 'lm.arpa')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        if at_once:
            list(model.score_lines(texts, eos=eos))
        else:
            [model.score(text, eos=eos) for text in texts]
    assert len(caught) == bool(share)
    assert all(share in str(found.message) for found in caught)


@pytest.mark.parametrize('words_at_once', [2**18, 3])
@pytest.mark.parametrize('bos, eos', [*itertools.product([True, False], repeat=2)])
def test_many_lines_have_the_scores_of_single_ones(weather, monkeypatch, words_at_once, bos, eos):
    monkeypatch.setattr(kenlm_model, '_WORDS', words_at_once)
    lines = list(weather.score_lines(iter(LINES), bos, eos))
    for text, line in zip(LINES, lines, strict=True):
        expected = list(weather.full_scores(text, bos, eos))
        assert len(line.ids_T) == len(expected) and line.log10_p_T.sum() == pytest.approx(weather.score(text, bos, eos))
        for found, word in zip(zip(line.log10_p_T, line.lengths_T, line.ids_T == 0), expected, strict=True):
            assert found == (pytest.approx(word[0], abs=1e-9), *word[1:])
    assert list(weather.score_lines([])) == []
    assert [len(line.ids_T) for line in weather.score_lines(['', ''], bos, eos)] == [eos, eos]


def test_what_is_in_the_vocabulary(weather):
    words = ['rain', 'and', 'wind', 'snow', 'fog', 'hail', 'sun', 'ice', 'dew']
    assert weather.vocabulary == ['<unk>', '<s>', '</s>', *words]
    known = [word for word in [*weather.vocabulary, 'zebra', 'Rain', ''] if word in weather]
    assert known == weather.vocabulary[1:] and weather.order == 4


def test_a_model_has_its_path_and_can_be_pickled(weather, tmp_path):
    assert weather.path == str(tmp_path / 'weather.arpa').encode() and repr(weather) == '<Model from weather.arpa>'
    again = pickle.loads(pickle.dumps(weather))
    assert again.score('rain and wind') == weather.score('rain and wind')
    assert isinstance(kenlm.LanguageModel(weather.path), kenlm.Model)


def test_copies_of_a_model_from_memory_have_its_parameters(runs):
    loaded, other = loading.load(runs / 'counts'), loading.load(runs / 'network')
    model = kenlm.Model(dataclasses.replace(loaded, model=other.model))  # keeps the folder of the counts
    for again in (copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert again.score('i like coffee') == model.score('i like coffee') and again.path == model.path


def test_one_sentence_is_not_read_as_sentences_of_one_letter(weather):
    for text in ('rain and wind', b'rain and wind'):
        with refuses('sentences'):
            next(weather.score_lines(text))


def test_a_mixture_with_weights_from_an_iterator_can_be_copied(weather):
    mixed = kenlm.Model([weather.path, weather.path], iter([0.25, 0.75]))
    assert copy.copy(mixed).score('rain and wind') == mixed.score('rain and wind')


def test_states_are_compared_by_the_words_that_matter(weather):
    one, other = after(weather, ['rain', 'and', 'wind']), after(weather, ['hail', 'rain', 'and', 'wind'])
    assert one == other and hash(one) == hash(other) and not one != other and one is not other
    assert after(weather, ['fog']) == kenlm.State() != begin(weather)
    assert kenlm.State() < begin(weather) < one and one >= other and not one > other
    assert one != 'wind' and len({one, other, kenlm.State(), after(weather, ['fog'])}) == 2


@pytest.mark.parametrize('copied', [copy.copy, copy.deepcopy])
def test_a_copied_state_stays_when_the_first_is_written(weather, copied):
    state = after(weather, ['rain'])
    kept = copied(state)
    assert kept == state
    assert weather.BaseScore(state, 'and', state) == pytest.approx(-0.15, abs=1e-6)  # one state for both
    assert kept == after(weather, ['rain']) != state


def test_an_ngram_of_zeros_and_a_file_without_the_unknown_word_are_as_in_kenlm(tmp_path):
    text = (
        WEATHER.replace('-1.5	<unk>	-2\n', '')
        .replace('ngram 1=12', 'ngram 1=11')
        .replace('-1.2	fog', '-99	fog')
    )
    text = ''.join(line for line in text.splitlines(keepends=True) if '<unk>' not in line)
    text = text.replace('ngram 2=12', 'ngram 2=10').replace('ngram 3=8', 'ngram 3=7')
    (tmp_path / 'file').write_text(text)
    model = kenlm.Model(tmp_path / 'file')
    assert model.score('zebra', bos=False, eos=False) == -100
    assert model.score('fog', eos=False) == pytest.approx(-99.4, abs=1e-5)
    assert model.score('<s>', bos=False, eos=False) == -99


# --- KenLM itself ----------------------------------------------------------------------------------------


def without_gaps(text):
    for line in GAPS:
        assert line in text
        text = text.replace(line, '')
    return text.replace('ngram 3=8', 'ngram 3=6').replace('ngram 4=3', 'ngram 4=2')


@pytest.mark.parametrize('source', ['gaps', 'no gaps', 'counts', 'quantized'])
def test_kenlm_agrees_on_words_lengths_and_which_states_are_equal(source, runs, tmp_path, nplm_command):
    theirs_of = pytest.importorskip('kenlm', reason='pip install kenlm')
    path = tmp_path / 'file.arpa'
    path.write_text(WEATHER if source == 'gaps' else without_gaps(WEATHER))
    if is_run := source in ('counts', 'quantized'):
        write_arpa(runs / source, path)
    model = kenlm.Model(runs / source if is_run else path)
    theirs, from_file = theirs_of.Model(str(path)), kenlm.Model(path)
    words = [word for word in [*model.vocabulary, 'zebra'] if word != '<s>']
    rng, pairs = np.random.default_rng(0), []
    for start in range(60):
        ours, file_state, kenlms = kenlm.State(), kenlm.State(), theirs_of.State()
        for reader, state in ((model, ours), (from_file, file_state), (theirs, kenlms)):
            (reader.BeginSentenceWrite if start % 2 else reader.NullContextWrite)(state)
        for word in rng.choice(words, 6).tolist():
            before, kenlms = kenlms, theirs_of.State()
            expected = theirs.BaseFullScore(before, word, kenlms)
            for reader, state in ((model, ours), (from_file, file_state)):
                found = reader.BaseFullScore(state, word, state)
                assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-5)
                assert found.oov == expected.oov and (source == 'gaps' or found[1] == expected.ngram_length)
            pairs.append((copy.copy(file_state), kenlms))
    for (one, their_one), (other, their_other) in itertools.combinations(pairs if source != 'gaps' else (), 2):
        assert (one == other) == (their_one == their_other) and (one != other or hash(one) == hash(other))
    of_text = [word for word in words[1:] if word not in ('</s>', '<text>')]  # which a run ignores
    for text in (' '.join(rng.choice(of_text, 7)) for _ in range(50)):
        assert model.score(text) == pytest.approx(theirs.score(text), abs=1e-5)
        assert model.perplexity(text) == pytest.approx(theirs.perplexity(text), rel=1e-5)
        for ours, expected in zip(from_file.full_scores(text), theirs.full_scores(text), strict=True):
            assert ours[0] == pytest.approx(expected[0], abs=1e-5) and ours[2] == expected[2]
    assert [w in model for w in [*words, '<s>']] == [w in theirs for w in [*words, '<s>']]


# --- runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['network', 'lstm', 'counts', 'quantized', 'interpolated', 'characters'])
def test_a_run_scores_as_nplm_score_does(runs, name, nplm_command, monkeypatch):
    model = kenlm.Model(runs / name)
    for text in ('I like zebra', 'dog hate i i i', 'coffee'):
        line = total_of_score(nplm_command, monkeypatch, text, runs / name, '--end')
        log10_p, lengths, oovs = zip(*model.full_scores(text))
        assert log10_p == pytest.approx(line['log10_p'], abs=1e-5) and list(lengths) == line['lengths']
        assert list(oovs) == [i == 0 for i in line['ids']]
        assert model.score(text) == pytest.approx(line['total'], abs=1e-5)
        assert model.score(text, eos=False) == pytest.approx(sum(line['log10_p'][:-1]), abs=1e-5)


@pytest.mark.parametrize('name', ['network', 'lstm', 'counts', 'quantized', 'interpolated', 'characters', 'mixture'])
def test_many_lines_of_a_run_have_the_scores_of_single_ones(runs, name):
    model = kenlm.Model([runs / 'lstm', runs / 'counts'] if name == 'mixture' else runs / name)
    texts = ['I like zebra', 'dog hate i i i', '', 'coffee']
    for bos in (True, False):
        for text, line in zip(texts, model.score_lines(texts, bos), strict=True):
            log10_p, lengths, oovs = zip(*model.full_scores(text, bos))
            assert line.log10_p_T == pytest.approx(log10_p, abs=1e-6) and tuple(line.lengths_T) == lengths
            assert tuple(line.ids_T == 0) == oovs


@pytest.mark.parametrize('name', ['counts', 'characters'])
def test_a_line_of_a_file_has_the_score_of_its_sentence(runs, name):
    model = kenlm.Model(runs / name)
    expected = model.score('der Hund')
    assert [model.score(text) for text in ('der Hund\n', 'der Hund\r\n', b'der Hund\n')] == [expected] * 3
    (line,) = model.score_lines(['der Hund\n'])
    assert line.log10_p_T.sum() == pytest.approx(expected)


TOKENIZED = "He was ` aimable , said He .\nHe did not , was said do n't .\n" * 40


@pytest.mark.parametrize('source', ['counts', 'network', 'imported'])
def test_text_that_is_tokenized_has_one_number_here_in_nplm_score_and_in_what_is_exported(
    source, tmp_path, nplm_command, monkeypatch
):
    (tmp_path / 'text').write_text(TOKENIZED)
    changes = {'model.family': 'modified_kneser_ney', 'model.n': 3}
    if source == 'network':
        changes = {'model.n': 3, 'model.m': 4, 'model.h': 5, 'train.epochs': 1}
    rules = {'corpus.tokens': 'whitespace', 'corpus.lowercase': False, 'corpus.split_possessive': False}
    config = config_lib.override(text_config.get_config(), {**changes, **rules, 'corpus.min_count': 1})
    config.corpus.path = str(tmp_path / 'text')
    experiment.run(config, tmp_path / 'run')
    run, file = tmp_path / 'run', tmp_path / 'file.arpa'
    if source != 'network':
        write_arpa(run, file)
    if source == 'imported':
        run = tmp_path / 'imported'
        nplm_command('import', file, f'--workdir={run}')
    model = kenlm.Model(run)
    for text in ('He was `aimable ,', "He don't, said—did “not”.", 'was ’ <p>said', '<s> <p> was <text> said </s>'):
        line = total_of_score(nplm_command, monkeypatch, text, run)
        scores = [log10_p for log10_p, *_ in model.full_scores(text, eos=False)]
        words = [word for word in text.split() if word not in ('<s>', '<p>', '<text>', '</s>')]
        assert line['words'] == words and len(scores) == len(words)
        assert scores == pytest.approx(line['log10_p'], abs=1e-5)
        if source != 'network' and importlib.util.find_spec('kenlm'):
            theirs = importlib.import_module('kenlm').Model(str(file))
            assert theirs.score(' '.join(words), eos=False) == pytest.approx(line['total'], abs=1e-5)


@pytest.mark.parametrize('name', ['network', 'lstm', 'counts', 'quantized', 'interpolated', 'characters', 'mixture'])
def test_all_next_words_are_those_of_single_words(runs, name):
    model = kenlm.Model([runs / 'lstm', runs / 'counts'] if name == 'mixture' else runs / name)
    words = [word for word in model.vocabulary if word != '<s>'][:9]
    states = [kenlm.State(), begin(model), after(model, words[1:2]), after(model, words), after(model, words[2:3] * 3)]
    log10_p_SxV = model.next_words([*states, states[1]])
    assert log10_p_SxV.dtype == np.float32 and log10_p_SxV.shape == (6, len(model.vocabulary))
    np.testing.assert_allclose((10.0**log10_p_SxV).sum(1), 1, atol=1e-5)
    fresh = kenlm.Model([runs / 'lstm', runs / 'counts'] if name == 'mixture' else runs / name)
    for row, read in ((1, []), (2, words[1:2]), (3, words), (4, words[2:3] * 3)):
        state = after(fresh, read)
        for word, log10_p in zip(model.vocabulary, log10_p_SxV[row].tolist()):
            if word != '<s>':
                assert fresh.BaseScore(state, word, kenlm.State()) == pytest.approx(log10_p, abs=2e-5)
    np.testing.assert_array_equal(log10_p_SxV[5], log10_p_SxV[1])
    assert model.next_words([]).shape == (0, len(model.vocabulary))


def test_a_packed_model_and_a_run_by_its_name_are_the_run(runs, tmp_path, nplm_command, monkeypatch):
    expected = kenlm.Model(runs / 'counts').score('i like coffee')
    nplm_command('pack', runs / 'counts', f'--output={tmp_path}/model.nplm')
    packed = kenlm.Model(tmp_path / 'model.nplm')
    assert packed.score('i like coffee') == expected and packed.path.endswith(b'/model.nplm')
    (tmp_path / 'runs').symlink_to(runs)
    monkeypatch.chdir(tmp_path)
    named = kenlm.Model('counts')
    assert named.score('i like coffee') == expected and pickle.loads(pickle.dumps(named)).path == named.path
    cut = (tmp_path / 'model.nplm').read_bytes()[:-9]
    (tmp_path / 'cut.nplm').write_bytes(cut)
    with refuses('RUN'):
        kenlm.Model('cut.nplm')


def test_sentences_are_cut_at_six_blanks_and_files_at_four(tmp_path, weather):
    assert weather.score('rain\vand\fwind') == weather.score('rain and wind')
    (tmp_path / 'file').write_text(WEATHER.replace('fog', 'fo\fg\v'))
    model = kenlm.Model(tmp_path / 'file')
    assert 'fo\fg\v' in model and next(model.full_scores('fo\fg\v'))[2]


def test_a_run_without_marks_has_no_ends_of_sentences(runs, nplm_command, monkeypatch):
    model = kenlm.Model(runs / 'unmarked')
    with refuses('eos'):
        model.score('i like')
    line = total_of_score(nplm_command, monkeypatch, 'i like coffee', runs / 'unmarked')
    assert [length for _, length, _ in model.full_scores('i like coffee', eos=False)] == line['lengths'] == [1, 2, 1]
    (found,) = model.score_lines(['i like coffee'], eos=False)
    assert found.lengths_T.tolist() == line['lengths']
    assert model.score('i like coffee', eos=False) == pytest.approx(line['total'], abs=1e-5)
    assert '</s>' not in model and '</s>' in kenlm.Model(runs / 'counts')


def test_states_of_a_network_are_the_words_that_it_reads(runs):
    window, lstm = kenlm.Model(runs / 'network'), kenlm.Model(runs / 'lstm')
    assert window.order and lstm.order is None
    long = ['i', 'like', 'coffee'] * 4
    assert after(window, long) == after(window, long[3:]) and after(lstm, long) != after(lstm, long[3:])
    assert after(lstm, long) == after(lstm, long) and hash(after(lstm, long)) == hash(after(lstm, long))


def test_words_after_one_state_share_a_forward_pass_and_states_share_one(monkeypatch):
    model = make_model(7)
    passes = []
    predict = type(model).predict
    monkeypatch.setattr(type(model), 'predict', lambda self, state: passes.append(1) or predict(self, state))
    reader = NetworkReader(model)
    contexts = [reader.after(reader.null, word) for word in range(5)]
    assert not passes
    reader.next_words(contexts)
    assert len(passes) == 2
    for context in contexts:
        for word in range(5):
            reader.score(context, word)
            reader.after(context, word)
    assert len(passes) == 2


# --- mixtures --------------------------------------------------------------------------------------------


def test_a_mixture_is_the_weighted_sum_and_takes_the_words_in_any_order(weather, tmp_path):
    lines = WEATHER.splitlines(keepends=True)
    first = lines.index('\\1-grams:\n') + 1
    lines[first : first + 12] = lines[first : first + 12][::-1]
    (tmp_path / 'other.arpa').write_text(''.join(lines).replace('-0.5	<s> rain', '-1.5	<s> rain'))
    paths = [tmp_path / 'weather.arpa', tmp_path / 'other.arpa']
    other, mixed = kenlm.Model(paths[1]), kenlm.Model(paths, weights=[0.25, 0.75])
    assert mixed.path == [str(path).encode() for path in paths] and '<s>' not in mixed.vocabulary
    for text in ('rain and wind', 'snow zebra rain', ''):
        parts = zip(weather.full_scores(text), other.full_scores(text), mixed.full_scores(text), strict=True)
        for one, two, both in parts:
            assert both[0] == pytest.approx(np.log10(0.25 * 10 ** one[0] + 0.75 * 10 ** two[0]), abs=1e-6)
            assert both[1] == max(one[1], two[1])
    assert kenlm.Model(paths).score('rain', eos=False) == pytest.approx(np.log10((10**-0.5 + 10**-1.5) / 2), abs=1e-6)
    for numbers in ([np.int64(1), np.float32(0)], np.array([1, 0], np.float32)):
        assert kenlm.Model(paths, numbers).score('rain') == kenlm.Model(paths, [1, 0]).score('rain')
    assert kenlm.Model(paths, [1, 0]).score('rain and') == pytest.approx(weather.score('rain and'), abs=1e-6)
    alone = kenlm.Model(paths[:1], [1.0])  # a single model is not wrapped and has the shorter states of an n-gram
    assert alone.vocabulary == weather.vocabulary and alone.path == weather.path
    assert [*alone.full_scores('rain zebra')] == [*weather.full_scores('rain zebra')] and not mixed.uses_jax
    assert after(mixed, ['fog']) == kenlm.State() or after(mixed, ['fog']) == after(mixed, ['rain', 'fog'])
    mixed.NullContextWrite(null := kenlm.State())
    assert null == kenlm.State() and len({null, kenlm.State()}) == 1 and null < begin(mixed)


def test_a_mixture_of_runs_scores_as_nplm_score_does(runs, nplm_command, monkeypatch):
    model = kenlm.Model([str(runs / 'lstm'), str(runs / 'counts')], weights=[0.3, 0.7])
    flags = (runs / 'lstm', runs / 'counts', '--weights=0.3,0.7', '--end')
    line = total_of_score(nplm_command, monkeypatch, 'i like zebra coffee', *flags)
    log10_p = [p for p, *_ in model.full_scores('i like zebra coffee')]
    assert log10_p == pytest.approx(line['log10_p'], abs=1e-5) and model.order is None


# --- speed -----------------------------------------------------------------------------------------------


def test_all_next_words_of_an_ngram_model_take_a_fiftieth_of_the_time_of_single_words():
    V, rng = 16_383, np.random.default_rng(0)
    keys_2 = np.unique(rng.integers(0, V * 50, 200_000))  # 50 contexts with thousands of followers
    table = NgramTable(V, (np.arange(V), keys_2))
    model = BackoffModel(table, [np.full(V, -9.0), np.full(len(keys_2), -7.0)], [np.full(V, -0.5)])
    reader = NgramReader(model)
    contexts = [reader.after(reader.null, word) for word in range(16)]
    seconds = {'all': [], 'single': []}
    for _ in range(3):
        started = time.process_time()
        log10_p_SxV = reader.next_words(contexts)
        seconds['all'].append((time.process_time() - started) / len(contexts))
        started = time.process_time()
        single_V = [reader.score(contexts[3], word)[0] for word in range(V)]
        seconds['single'].append(time.process_time() - started)
    np.testing.assert_allclose(log10_p_SxV[3], single_V, rtol=1e-6)
    assert min(seconds['single']) > 50 * min(seconds['all'])


# --- mistakes --------------------------------------------------------------------------------------------


def test_bad_input_is_one_line(weather, runs, tmp_path):
    state, foreign = begin(weather), begin(kenlm.Model(tmp_path / 'weather.arpa'))
    for call, key in (
        (lambda: kenlm.Model(tmp_path / 'none'), 'path'),
        (lambda: kenlm.Model(tmp_path), tmp_path.name),
        (lambda: kenlm.Model([]), 'path'),
        (lambda: kenlm.Model(None), 'path'),
        (lambda: kenlm.Model([weather.path, 5]), 'path'),
        (lambda: kenlm.Model([weather.path, runs / 'lstm']), 'path'),
        (lambda: kenlm.Model([weather.path] * 2, [0.5]), 'weights'),
        (lambda: kenlm.Model([weather.path] * 2, [0.5, 'x']), 'weights'),
        (lambda: kenlm.Model([weather.path] * 2, [0.5, 0.1]), 'weights'),
        (lambda: kenlm.Model([weather.path] * 2, 5), 'weights'),
        (lambda: kenlm.Model([weather.path] * 2, np.array(5.0)), 'weights'),
        (lambda: weather.score(None), 'text'),
        (lambda: weather.BaseScore(state, 5, state), 'text'),
        (lambda: weather.BaseScore(foreign, 'rain', state), 'state'),
        (lambda: weather.next_words([state, foreign]), 'state'),
    ):
        with refuses(key) as error:
            call()
        assert '\n' not in str(error.value)


@pytest.mark.parametrize(
    'old, new',
    [
        ('-0.3\train and\t-0.45', '-0.3\train and\tnan'),
        ('-0.3\train and\t-0.45', '-0.3\train and\tinf'),
        ('-0.3\train and\t-0.45', '-0.3\train and\t-inf'),
        ('-0.3\train and\t-0.45', '-0.3\train and\t100'),
        ('-0.02\t<s> rain and wind', '-0.02\t<s> rain and wind\t-0.1'),
        ('-0.02\t<s> rain and wind', '-0.02\t<s> rain and wind\tnan'),
        ('-0.3\train and\t-0.45', '-0.3\train and\t-0.45\t-1'),
        ('-0.3\train and\t-0.45', '0.3\train and\t-0.45'),
    ],
)
def test_odd_numbers_in_a_file_are_refused_where_kenlm_refuses_them(tmp_path, old, new):
    path = tmp_path / 'odd.arpa'
    assert old in WEATHER
    path.write_text(WEATHER.replace(old, new))
    number = next(i for i, line in enumerate(path.read_text().splitlines(), start=1) if line == new)
    with refuses(f'{path}:{number}'):
        kenlm.Model(path)


def test_a_weight_of_zero_at_the_highest_order_and_none_below_are_taken(tmp_path, weather):
    (tmp_path / 'file').write_text(
        WEATHER.replace('<s> rain and wind', '<s> rain and wind\t0').replace('\t0\n', '\t-0\n')
    )
    assert kenlm.Model(tmp_path / 'file').score('rain and wind') == weather.score('rain and wind')


# --- the package -----------------------------------------------------------------------------------------


def test_the_package_has_it_without_an_import_of_its_own():
    code = 'import nplm_jax; print(nplm_jax.kenlm.Model.__name__)'
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == 'Model\n' and nplm_jax.kenlm is kenlm
