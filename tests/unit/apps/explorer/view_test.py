"""Compares the data of the explorer's page with direct evaluation of the models."""

import dataclasses
import math

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from configs import text as text_config
from nplm_jax.apps.explorer import view
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, vocabulary
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.inference import embeddings, generation
from nplm_jax.models.mixture import ContextBins, Mixture
from nplm_jax.runs import command_models as loaded_models

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


WEIGHTS = 3, 1  # of the network and of the counts, up to a factor


@pytest.fixture(scope='module')
def models(folders):
    return loaded_models.load_models([str(folders / 'network'), str(folders / 'counts')])


def p(model, models, *words):
    return np.exp(model.next_word(models.encode_prompt(words)[None])[0].astype(np.float64))


def test_the_likeliest_next_words_of_each_model_and_their_mixture(models):
    mixed, network, counts = view.summarize(models, view.score(models, ['i', 'love']), 3)
    assert [x.name for x in (mixed, network, counts)] == ['mixture', 'network', 'counts']
    assert [x.next_words[0][0] for x in (mixed, network, counts)] == ['coffee'] * 3
    for prediction, model in zip((network, counts), models.models):
        expected = p(model, models, 'i', 'love')
        assert [x for _, x in prediction.next_words] == pytest.approx(sorted(expected, reverse=True)[:3], abs=1e-6)
        assert all(x == pytest.approx(expected[models.vocabulary.ids[w]]) for w, x in prediction.next_words)
    both = np.mean([p(model, models, 'i', 'love') for model in models.models], axis=0)
    assert [x for _, x in mixed.next_words] == pytest.approx(sorted(both, reverse=True)[:3], abs=1e-6)


@pytest.mark.parametrize('words', [[], ['i'], ['i', 'zzz', 'milk'], ['i', 'like', 'dog'] * 100])
def test_each_words_surprisal_is_its_next_word_probability(models, words):
    for prediction, (_, model) in zip(view.summarize(models, view.score(models, words), 1), models.with_mixture()):
        ids = models.vocabulary.encode(words)
        expected = [-math.log2(p(model, models, *words[:t])[i]) for t, i in enumerate(ids[:12])]
        assert len(prediction.bits_T) == len(words)
        np.testing.assert_allclose(prediction.bits_T[:12], expected, rtol=0, atol=1e-4)
        mean = prediction.perplexity
        assert math.isnan(mean) if not words else mean == pytest.approx(2 ** prediction.bits_T.mean())


def test_perplexities_run_over_the_text_and_stay_infinite_after_a_word_of_probability_zero():
    prediction = view.Prediction('any', [], 1.0, np.array([1, 3, np.inf, 1]))
    np.testing.assert_allclose(prediction.perplexities_T, [2, 4, np.inf, np.inf])


def test_the_next_words_perplexity_is_the_exponential_of_its_entropy(models):
    for prediction, (_, model) in zip(view.summarize(models, view.score(models, ['i']), 1), models.with_mixture()):
        p_V = p(model, models, 'i')
        entropy = -sum(x * math.log(x) for x in p_V if x > 0)
        assert prediction.branching == pytest.approx(math.exp(entropy), rel=1e-4)


@pytest.mark.parametrize('weights', [WEIGHTS, (1, 0), (0, 0.2)])
def test_a_visitors_weights_mix_probabilities(models, weights):
    mixed, *_ = view.summarize(models, view.score(models, ['i', 'love']), 2, weights)
    shares = np.array(weights) / sum(weights)
    expected = sum(w * p(model, models, 'i', 'love') for w, model in zip(shares, models.models))
    assert [x for _, x in mixed.next_words] == pytest.approx(sorted(expected, reverse=True)[:2], rel=1e-4)
    first = sum(w * p(model, models)[models.vocabulary.ids['i']] for w, model in zip(shares, models.models))
    assert mixed.bits_T[0] == pytest.approx(-math.log2(first), abs=1e-3)


def test_learned_weights_are_the_initial_ones_and_stay_until_a_visitor_moves_them(models):
    learned = Mixture(models.models, np.array([[0.9, 0.1]]), ContextBins())
    loaded = dataclasses.replace(models, mixture=learned)
    assert view.initial_weights(models) == [0.5, 0.5] and view.initial_weights(loaded) == [0.9, 0.1]
    as_loaded, _, _ = view.summarize(loaded, view.score(loaded, ['i']), 3)
    by_hand, _, _ = view.summarize(models, view.score(models, ['i']), 3, (9, 1))
    assert dict(as_loaded.next_words) == pytest.approx(dict(by_hand.next_words))


def test_other_weights_compute_no_model_anew(models, monkeypatch):
    words = ['i', 'hate', 'dog']
    scores = view.score(models, words)
    before = view.summarize(models, scores, 3)
    for model in models.models:
        monkeypatch.setattr(type(model), 'next_word', lambda *_: pytest.fail('computed anew'))
        monkeypatch.setattr(type(model), 'score', lambda *_: pytest.fail('computed anew'))
    mixed, *others = view.summarize(models, scores, 3, WEIGHTS)
    assert mixed.next_words != before[0].next_words
    assert [x.next_words for x in others] == [x.next_words for x in before[1:]]


@pytest.mark.parametrize('position', [0, 2])
def test_an_explanation_has_the_probability_the_rank_and_what_was_likelier(models, position):
    words = ['i', 'love', 'milk']
    for explanation, (_, model) in zip(view.explain(models, words, position, 2), models.with_mixture()):
        p_V = p(model, models, *words[:position])
        word = models.vocabulary.ids[words[position]]
        assert explanation.probability == pytest.approx(p_V[word], rel=1e-4)
        assert explanation.rank == sum(x >= p_V[word] for x in p_V)
        assert [x for _, x in explanation.expected] == pytest.approx(sorted(p_V, reverse=True)[:2], rel=1e-4)


def test_one_model_has_no_mixture_beside_it_and_more_words_than_there_are_are_all(folders):
    alone = loaded_models.load_models([str(folders / 'network')])
    (prediction,) = view.summarize(alone, view.score(alone, []), 99)
    assert prediction.name == 'network' and len(prediction.next_words) == len(alone.vocabulary)
    assert sum(x for _, x in prediction.next_words) == pytest.approx(1, abs=1e-5)
    (prediction,) = view.summarize(alone, view.score(alone, []), 1, (1,))
    assert view.initial_weights(alone) == [1] and prediction.name == 'network'


def test_neighbours_are_the_networks_and_none_of_an_unknown_word(models):
    ((name, near),) = embeddings.nearest_words(models.vocabulary, models.word_features(), 'love', 3)
    ids, cosines = embeddings.neighbours(models.models[0].params['C_VxM'], [models.vocabulary.ids['love']], 3)
    assert name == 'network' and [w for w, _ in near] == models.vocabulary.decode(ids[0])
    assert [c for _, c in near] == pytest.approx(cosines[0])
    assert (
        embeddings.nearest_words(models.vocabulary, models.word_features(), 'zzz', 3)
        == embeddings.nearest_words(models.vocabulary, models.word_features(), '', 3)
        == []
    )


@pytest.mark.parametrize('source,weights', [(0, None), (0, WEIGHTS), (1, WEIGHTS)])
def test_each_model_continues_a_text_as_generate_does(models, source, weights):
    choice = generation.Choice(top_k=2)
    found = view.continue_text(models, source, ['i', 'love'], 4, 2, choice, 3, weights)
    mixture = Mixture(models.models, np.array([[0.75, 0.25]]), ContextBins()) if weights else models.mixture
    ids = generation.sample([mixture, models.models[0]][source], models.encode_prompt(['i', 'love']), 4, 2, choice, 3)
    assert found == [' '.join(models.vocabulary.decode(x)) for x in ids]


def test_a_visitors_weights_do_not_change_a_run_that_is_itself_a_mixture(models):
    counts = Mixture(models.models, np.array([[0.0, 1.0]]), ContextBins())
    loaded = dataclasses.replace(models, models=[models.models[0], counts])
    arguments = loaded, 2, ['i'], 8, 4, generation.Choice(), 3
    assert view.continue_text(*arguments, weights_M=(1, 0)) == view.continue_text(*arguments)


def test_the_examples_have_known_words_alone_and_a_strange_vocabulary_gets_some_too(models, folders):
    assert view.examples(models, 2) == ['i love', 'i like']
    other = loaded_models.load_models([str(folders / 'other')])
    texts = view.examples(other, 2)
    assert len(texts) == 2 and all(word in other.vocabulary.ids for text in texts for word in text.split())


@pytest.mark.parametrize('kind', ['words', 'whitespace'])
@pytest.mark.parametrize(
    'text,more', [('the dog', "'s bone"), ('the dog ', "'s"), ('', "dog 's bone ."), ('the', 'dog')]
)
def test_appended_words_are_read_as_the_words_that_were_clicked(models, kind, text, more):
    words = vocabulary.build([*'the dog bone .'.split(), "'s"])
    words = dataclasses.replace(words, tokenizer=WordTokenizer(kind, lowercase=True, split_possessive=True))
    models = dataclasses.replace(models, vocabulary=words)
    assert models.tokenize(view.join(models, text, more), '') == [*text.split(), *more.split()]


def test_tokens_of_a_file_are_appended_with_their_own_spaces(models, tmp_path):
    learned = tokenizers.Tokenizer(BPE(unk_token='<unk>'))
    learned.pre_tokenizer, learned.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=20, special_tokens=['<unk>'], show_progress=False)
    learned.train_from_iterator(['the dog ran over the cat'] * 9, trainer)
    learned.save(str(tmp_path / 'tokens.json'))
    config = text_config.get_config(f'interpolated,{tmp_path / "tokens.json"}')
    config = config_lib.override(config, {'corpus.path': str(tmp_path / 'tokens.json')})
    tokenizer = corpora.make_tokenizer(config_lib.from_config(config).corpus)
    words = vocabulary.Vocabulary(tokenizer.tokens, (1,) * len(tokenizer.tokens), tokenizer)
    models, text = dataclasses.replace(models, vocabulary=words), ''
    tokens = models.tokenize('the dog ran', '')
    for i, token in enumerate(tokens):
        text = view.append(models, tokens[:i], text, token)
    assert text == 'the dog ran' and len(tokens) > 3


@pytest.mark.parametrize('value,text', [(1, '100.0%'), (0.1234, '12.3%'), (0.001, '0.1%'), (1e-4, '1 in 10,000')])
def test_a_probability_reads_as_per_cent_or_as_one_in_many(value, text):
    assert view.describe_probability(value) == text
    assert view.describe_probability(0) == 'never'
