"""Compares surprisal, entropy and rank with direct evaluation; tests spillover and data frames."""

import dataclasses
import inspect
import math
import warnings

import numpy as np
import pytest
from helpers import corpus_settings, features_of, make_model, refuses

import nplm_jax
from nplm_jax.apps.psycholinguistics import measurement, stimuli
from nplm_jax.apps.psycholinguistics.next_word_statistics import entropy, next_word_statistics
from nplm_jax.config.settings import Settings
from nplm_jax.data import vocabulary
from nplm_jax.data.corpora import make_tokenizer
from nplm_jax.data.stream import Span
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.ngram import kneser_ney
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.unsmoothed import add_delta
from nplm_jax.utils.errors import BadInput, NonFiniteError

WORDS = ('<rare>', 'the', '<p>', '<text>', 'dog', ',', '.', "'s", 'ran', 'well-known', 'a', 'cat')
VOCABULARY = vocabulary.Vocabulary(WORDS, (5, 20, 9, 2, 6, 8, 9, 3, 4, 1, 7, 4))
LINES = [np.array(x, np.int32) for x in ([3, 0, 5, 7, 1], [4], [1, 1, 2, 9, 11, 3, 3], [])]


class Uniform(LanguageModel):
    """A model with P = 1/4 for the first word and equal shares for the others; after an even id, P = 0 for id 1."""

    n = 2

    def score_span(self, tokens_T, span):
        raise NotImplementedError

    def next_word(self, contexts_BxN):
        p_BxV = np.full((len(contexts_BxN), 5), 0.25)
        p_BxV[:, 1] = 0
        return np.log(p_BxV, where=p_BxV > 0, out=np.full_like(p_BxV, -np.inf))


def make_models(size=12):
    rng = np.random.default_rng(0)
    tokens_T = np.minimum(rng.geometric(0.2, 400) - 1, size - 1).astype(np.int32)
    gru = {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}
    window, gru = make_model(size), make_model(size, gru, seed=1)
    residual = make_model(size, {'model.family': 'residual', 'model.direct': False, 'train.batch_size': 16}, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', kneser_ney.DiscountWarning)  # a short text
        trigram = kneser_ney.fit_modified(count(tokens_T, Span(0, 400), 3, size))
    unigram = add_delta(count(tokens_T, Span(0, 400), 1, size), 1.0)
    models = {'window': window, 'trigram': trigram, 'unigram': unigram, 'gru': gru, 'residual': residual}
    return models | {
        'mixture': mixture.equal([window, trigram]),
        'mixture without an order': mixture.equal([gru, trigram]),
    }


MODELS = make_models()


def loaded(model, **changes):
    tokenizer = make_tokenizer(corpus_settings('brown', **changes))
    return LoadedModel(Settings(name='net'), dataclasses.replace(VOCABULARY, tokenizer=tokenizer), model)


def measure(text, model=MODELS['window'], spelling=None, changes=(), **options):
    found = stimuli.from_text(text, 'text')
    return measurement.measure({'net': loaded(model, **dict(changes))}, found, measurement.Options(**options), spelling)


@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('max_contexts', [2, 256])
def test_statistics_are_those_of_the_next_word_distribution(name, max_contexts, monkeypatch):
    monkeypatch.setattr('nplm_jax.apps.psycholinguistics.next_word_statistics.MAX_TOKENS', max_contexts)
    model, prefixes = MODELS[name], [np.array(x, np.int32) for x in ([3, 2], [], [2], [3, 2])]
    for line, prefix, found in zip(LINES, prefixes, next_word_statistics(model, LINES, prefixes, 12)):
        before = [*prefix]
        after = [model.next_word(np.array([[*before, *line[:t]]], int))[0].astype(float) for t in range(len(line) + 1)]
        entropies = [sum(-p * math.log(p) for p in np.exp(log_p_V) if p) for log_p_V in after]
        np.testing.assert_allclose(found.log_p_T, [a[w] for a, w in zip(after, line)], atol=1e-5)
        np.testing.assert_allclose(found.entropy_before_T, entropies[:-1], atol=1e-5)
        np.testing.assert_allclose(found.entropy_after_T, entropies[1:], atol=1e-5)
        assert found.rank_T.tolist() == [sorted(a, reverse=True).index(a[w]) + 1 for a, w in zip(after, line)]


def test_words_of_probability_zero_add_nothing_to_the_entropy_and_equal_ones_share_a_rank():
    (found,) = next_word_statistics(Uniform(), [np.array([0, 3, 1])], [np.zeros(0, np.int32)], 5)
    np.testing.assert_allclose(found.entropy_before_T, math.log(4))
    assert found.rank_T.tolist() == [1, 1, 5] and found.log_p_T.tolist()[2] == -math.inf
    assert entropy(np.log([[0.5, 0.25, 0.25]]))[0] / math.log(2) == pytest.approx(1.5)


def test_a_distribution_that_is_none_is_refused():
    class Broken(Uniform):
        def next_word(self, contexts_BxN):
            return np.full((len(contexts_BxN), 5), np.nan)

    with pytest.raises(NonFiniteError):
        next_word_statistics(Broken(), [np.array([1])], [np.zeros(0, np.int32)], 5)


@pytest.mark.parametrize('name', ['window', 'trigram', 'mixture'])
def test_the_surprisals_of_a_text_add_up_to_its_perplexity(name):
    ids_T = np.random.default_rng(1).integers(1, 12, 700).astype(np.int32)
    columns = measure(' '.join(VOCABULARY.decode(ids_T)), MODELS[name], context='', tokens='whitespace')
    bits_W, test = np.array(columns['surprisal_net']), Span(500, 700)
    assert columns['num_tokens'] == [1] * 700
    expected = evaluate(MODELS[name], ids_T, test).perplexity
    assert 2 ** bits_W[500:].mean() == pytest.approx(expected, rel=1e-5)


def test_a_word_of_several_tokens_by_the_chain_rule():
    columns = measure("the dog's, ran")
    assert columns['tokens'] == ['the', "dog 's ,", 'ran'] and columns['num_tokens'] == [1, 3, 1]
    context, log_p = ['<p>', 'the'], 0.0
    entropies = []
    for token in ('dog', "'s", ',', 'ran'):
        log_p_V = MODELS['window'].next_word(VOCABULARY.encode(context)[None])[0].astype(float)
        entropies.append(-(np.exp(log_p_V) * log_p_V).sum() / math.log(2))
        log_p += log_p_V[VOCABULARY.ids[token]] if token != 'ran' else 0
        context.append(token)
    assert columns['surprisal_net'][1] == pytest.approx(-log_p / math.log(2), abs=1e-5)
    assert columns['entropy_net'][1:] == pytest.approx([entropies[0], entropies[-1]], abs=1e-5)
    assert columns['entropy_reduction_net'][1] == pytest.approx(entropies[0] - entropies[-1], abs=1e-5)


def test_a_run_named_like_the_column_of_another_run_is_refused():
    models = dict.fromkeys(('net', 'net_prev1'), loaded(MODELS['window']))
    with refuses('column'):
        measurement.measure(models, stimuli.from_text('the dog', 'text'), measurement.Options(spillover=1))


def test_the_punctuation_of_a_word_is_left_out_of_it_and_read_all_the_same():
    attached, alone, bare = measure('the dog, ran ,'), measure('the dog, ran ,', punctuation='word'), measure('the dog')
    assert alone['surprisal_net'][1] == pytest.approx(bare['surprisal_net'][1], abs=1e-6)
    assert attached['surprisal_net'][1] > alone['surprisal_net'][1]
    for row in (0, 2, 3):  # the last word consists only of punctuation, and is counted
        assert attached['surprisal_net'][row] == alone['surprisal_net'][row]
    assert (attached['length'], alone['length']) == ([3, 4, 3, 1], [3, 3, 3, 1])
    assert measure('cafe\u0301 caf\u00e9')['length'] == [4, 4]  # both are NFC in the text that the model reads
    assert attached['rank_net'] == alone['rank_net'] and attached['log_frequency'] == alone['log_frequency']
    assert alone['entropy_reduction_net'][1] == pytest.approx(bare['entropy_reduction_net'][1], abs=1e-6)


def test_the_entropy_reduction_is_the_entropy_before_a_word_less_that_after_it():
    columns = measure('the dog ran .\n\na cat')
    entropies, reductions = columns['entropy_net'], columns['entropy_reduction_net']
    for row in (0, 1, 2, 4):
        assert reductions[row] == pytest.approx(entropies[row] - entropies[row + 1], abs=1e-9)


def test_frequency_and_how_unknown_words_are_scored():
    columns = measure('dog, zebra the')
    total = sum(VOCABULARY.counts) + len(VOCABULARY) / 2
    assert columns['log_frequency'] == pytest.approx([math.log(c / total) for c in (6.5, 0.5, 20.5)])
    assert columns['in_vocabulary'] == [True, False, True]
    assert columns['scored_as'] == ['word', '<rare>', 'word']
    log_p_V = MODELS['window'].next_word(VOCABULARY.encode(['<text>', '<p>', 'dog', ','])[None])[0]
    assert columns['surprisal_net'][1] == pytest.approx(-log_p_V[0] / math.log(2), abs=1e-5)


def test_an_unknown_word_is_spelled():
    symbols = vocabulary.Vocabulary(('<rare>', '<end>', 'z', 'e'), (1, 1, 1, 1))
    spelling = Spelling(make_model(4, seed=3), symbols, VOCABULARY)
    rare, spelled = measure('the zez ran'), measure('the zez ran', spelling=spelling)
    bits = -spelling.log_probabilities(['zez'])[0] / math.log(2)
    difference = np.subtract(spelled['surprisal_net'], rare['surprisal_net'])
    np.testing.assert_allclose(difference, [0, bits, 0], atol=1e-9)
    assert spelled['scored_as'] == ['word', 'spelled', 'word'] and bits > 0


@pytest.mark.parametrize(
    'context,before',
    [
        (None, ['<p>']),
        ('<text> <p>', ['<text>', '<p>']),
        ('', []),
        ("<p> The dog's\nzebra,", ['<p>', 'the', 'dog', "'s", 'zebra', ',']),
    ],
    ids=str,
)
@pytest.mark.parametrize('name', ['window', 'gru'])
def test_the_context_is_read_before_every_item_and_not_scored(name, context, before):
    columns = measure('the dog\n\nthe cat\n\n<p> the', MODELS[name], context=context)
    log_p_V = MODELS[name].next_word(VOCABULARY.encode(before)[None])[0]
    expected = -log_p_V[VOCABULARY.ids['the']] / math.log(2)
    assert [columns['surprisal_net'][row] for row in (0, 2)] == pytest.approx([expected] * 2, abs=1e-5)
    marked = [] if context is None else before  # by default, nothing precedes an item that begins with a boundary token
    assert columns['starts_after'] == [' '.join(before)] * 4 + [' '.join(marked)] * 2


def test_no_mark_stands_before_an_item_where_the_corpus_has_none():
    assert measure('the', changes={'boundary_tokens': False})['starts_after'] == ['']


def test_a_window_reads_rare_words_before_the_context_and_a_carry_starts_from_zeros_and_one_rare_word():
    def bits(name, context):
        return measure('the', MODELS[name], context=context)['surprisal_net'][0]

    for name in ('window', 'trigram'):
        assert bits(name, '') == pytest.approx(bits(name, '<rare> ' * 40), abs=1e-6)
    for name in ('gru', 'residual'):
        network, params = MODELS[name].network, MODELS[name].params
        rare = VOCABULARY.encode(['<rare>'])[None]
        features, _ = features_of(network, params, rare, network.body.start(1))
        log_p_V = network.output.log_probabilities(params, features)[0]
        assert bits(name, '') == pytest.approx(-float(log_p_V[VOCABULARY.ids['the']]) / math.log(2), abs=1e-5)
        assert abs(bits(name, '') - bits(name, '<rare> ' * 40)) > 1e-3


def test_spillover_stays_within_its_item():
    columns = measure('the dog ran\n\na cat', spillover=2)
    for key in ('length', 'log_frequency', 'surprisal_net'):
        values = columns[key]
        np.testing.assert_equal(columns[f'{key}_prev1'], [math.nan, values[0], values[1], math.nan, values[3]])
        np.testing.assert_equal(columns[f'{key}_prev2'], [math.nan, math.nan, values[0], math.nan, math.nan])
    assert 'length_prev3' not in columns and not any('prev' in key for key in measure('the'))


def test_several_models_side_by_side_and_an_item_that_does_not_depend_on_others():
    models = {name: loaded(MODELS[name]) for name in ('window', 'gru')}
    rows = nplm_jax.surprisal(models, 'the dog, ran'.split())
    assert [row['word'] for row in rows] == ['the', 'dog,', 'ran'] and [row['zone'] for row in rows] == [1, 2, 3]
    together = measure('a cat ran .\n\nthe dog, ran', MODELS['gru'])
    for row, bits in zip(rows, together['surprisal_net'][4:]):
        assert row['surprisal_gru'] == pytest.approx(bits, abs=1e-5) and row['surprisal_window'] != row['surprisal_gru']


def test_weights_add_the_mixture_of_the_models():
    models = {name: loaded(MODELS[name]) for name in ('window', 'gru')}
    for row in nplm_jax.surprisal(models, 'the dog, ran'.split(), weights=[0.7, 0.3], punctuation='word'):
        p, first, second = (2 ** -row[f'surprisal_{name}'] for name in ('mixture', 'window', 'gru'))
        assert p == pytest.approx(0.7 * first + 0.3 * second, rel=1e-5)


def frame_module(name):
    return pytest.importorskip(name, reason=f'needs {name}')


TABLE = {'story': [1, 1, 2], 'zone': [1, 2, 1], 'word': ['the', 'dog,', 'a'], 'rt': [300.5, None, 250.0]}


def test_a_pandas_frame_keeps_its_columns_and_its_index():
    pandas = frame_module('pandas')
    frame = pandas.DataFrame(TABLE, index=[7, 8, 9])
    found = nplm_jax.surprisal(loaded(MODELS['window']), frame, item='story', spillover=1)
    assert list(found.index) == [7, 8, 9] and found[list(TABLE)].equals(frame) and list(frame) == list(TABLE)
    assert found['surprisal_net'].tolist() == measure('the dog,\n\na')['surprisal_net']
    assert found['rank_net'].dtype.kind == 'i' and found['length_prev1'].isna().tolist() == [True, False, True]
    frame.loc[8, 'word'] = None
    with refuses("the frame, row 2, column 'word'"):
        nplm_jax.surprisal(loaded(MODELS['window']), frame, item='story')


def test_a_polars_frame_keeps_its_columns():
    polars = frame_module('polars')
    frame = polars.DataFrame(TABLE)
    found = nplm_jax.surprisal(loaded(MODELS['window']), frame, item='story', spillover=1)
    assert found.select(list(TABLE)).equals(frame)
    assert found['surprisal_net'].to_list() == measure('the dog,\n\na')['surprisal_net']
    assert found['length_prev1'].to_list() == [None, 3, None]


@pytest.mark.parametrize('name', ['pandas', 'polars'])
def test_a_frame_of_sentences_becomes_one_of_words(name):
    columns = {'item': [1, 1], 'condition': ['a', 'b'], 'text': ['the dog,', 'a'], 'rt': [300.5, None]}
    frame = frame_module(name).DataFrame(columns)
    found = nplm_jax.surprisal(loaded(MODELS['window']), frame, item=('item', 'condition'), sentence='text')
    cells = {key: list(found[key]) for key in ('word', 'zone', 'condition', 'rt', 'surprisal_net')}
    assert (
        cells['word'] == ['the', 'dog,', 'a'] and cells['zone'] == [1, 2, 1] and cells['condition'] == ['a', 'a', 'b']
    )
    assert cells['rt'][:2] == [300.5, 300.5] and cells['surprisal_net'] == measure('the dog,\n\na')['surprisal_net']


def test_a_list_has_none_where_a_number_is_missing():
    first, second = nplm_jax.surprisal(loaded(MODELS['window']), ['the', 'dog'], spillover=1)
    assert first['length_prev1'] is None and second['length_prev1'] == 3


OTHER = vocabulary.Vocabulary((*WORDS[:-1], 'fox'), VOCABULARY.counts)
CASE_KEPT = loaded(MODELS['window'], lowercase=False)
WRONG = [
    ({}, {}, 'model={}: '),
    ({'b': LoadedModel(Settings(), OTHER, None)}, {}, "model='b': "),
    (
        {'b': CASE_KEPT},
        {},
        "model='b': ",
    ),
    ({}, {'frame': 'the dog'}, "frame='str': "),
    ({}, {'frame': []}, 'the list: '),
    ({}, {'frame': ['the dog'], 'sentence': 'text'}, "sentence='text': "),
    ({}, {'punctuation': 'none'}, "punctuation='none': "),
    ({}, {'spillover': -1}, 'spillover=-1: '),
    ({}, {'weights': [1.0]}, 'weights=[1.0]: '),
    ({'b': loaded(MODELS['gru'])}, {'weights': [1.0]}, 'weights=[1.0]: '),
    ({'b': loaded(MODELS['gru'])}, {'weights': [0.7, 0.7]}, 'weights=[0.7, 0.7]: '),
    ({'mixture': loaded(MODELS['gru'])}, {'weights': [0.5, 0.5]}, "model='mixture': "),
]


@pytest.mark.parametrize('others,arguments,message', WRONG)
def test_one_clear_line(others, arguments, message):
    models = {} if message.startswith('model={}') else {'a': loaded(MODELS['window']), **others}
    with pytest.raises(BadInput) as error:
        nplm_jax.surprisal(models, **{'frame': ['a'], **arguments})
    assert str(error.value).startswith(message)


def test_a_column_of_a_name_that_is_added_is_refused():
    columns = {'item': [1], 'zone': [1], 'word': ['a']}
    models, options = {'net': loaded(MODELS['window'])}, measurement.Options(spillover=1)
    for name in measurement.measure(models, stimuli.from_columns(columns, 'x'), options):
        table = stimuli.from_columns({**columns, name: [1]}, 'x')
        with refuses('column'):
            measurement.measure(models, table, options)


@pytest.mark.parametrize('model', ['runs/a', None, [MODELS['window']]])
def test_only_loaded_models_are_taken(model):
    for models, key in ((model, 'model'), ({'a': loaded(MODELS['window']), 'b': model}, "model['b']")):
        with refuses(key):
            nplm_jax.surprisal(models, ['a'])


def test_models_that_cut_words_differently_are_refused():
    models = {name: loaded(MODELS['window'], tokens=name) for name in ('words', 'whitespace')}
    with refuses('model') as error:
        nplm_jax.surprisal(models, ['dog'])
    assert error.value.value == 'whitespace'


@pytest.mark.parametrize('name', ['window', 'gru', 'residual'])
def test_the_context_of_all_items_is_read_once(name, monkeypatch):
    model, lines, sizes = MODELS[name], [np.arange(8) % 12, np.arange(3, 11)], []
    context, prefill = np.arange(40) % 12, type(model).prefill
    monkeypatch.setattr(type(model), 'prefill', lambda self, ids: sizes.append(np.shape(ids)) or prefill(self, ids))
    found = next_word_statistics(model, lines, [context, context], 12)
    assert sizes == [(1, 40)]
    monkeypatch.undo()
    for line, statistics in zip(lines, found):
        expected = model.score_lines([np.append(context, line)])[0][40:]
        np.testing.assert_allclose(statistics.log_p_T, expected, atol=1e-5)


def test_the_function_is_a_public_name_with_a_docstring():
    assert 'surprisal' in nplm_jax.__all__ and inspect.getdoc(nplm_jax.surprisal)
