import jax.numpy as jnp
import numpy as np

from nplm_jax.data import corpora, dataset, vocabulary
from nplm_jax.data.corpora import Span
from nplm_jax.data.word_stream import WordStream


def test_windows_by_hand():
    tokens = jnp.asarray([5, 6, 7, 8, 9], jnp.int32)
    contexts, targets = dataset.windows(tokens, jnp.asarray([4, 1, 0], jnp.int32), 3)
    assert contexts.tolist() == [[6, 7, 8], [0, 0, 5], [0, 0, 0]]  # in reading order, <rare> before the start
    assert targets.tolist() == [9, 6, 5]


def test_order_is_a_pure_function_of_seed_and_epoch():
    span = Span(10, 1010)
    first = dataset.epoch_order(1, 0, span)
    assert sorted(first.tolist()) == list(range(10, 1010))
    assert first.tolist() == dataset.epoch_order(1, 0, span).tolist()
    for other in (dataset.epoch_order(1, 1, span), dataset.epoch_order(2, 0, span)):
        assert (first != other).mean() > 0.9


def test_unigrams_are_of_the_training_words_and_none_is_impossible():
    corpus = corpora.Corpus(Span(0, 4), Span(4, 5), Span(4, 5), WordStream.from_words('a b a a c'.split()))
    data = dataset.from_corpus(corpus, vocabulary.build(corpus.words))
    assert data.vocabulary.words == ('<rare>', 'a', 'b', 'c')
    np.testing.assert_allclose(
        np.exp(dataset.unigram_log_probabilities(data.train_words, 4)), np.array([0.5, 3.5, 1.5, 0.5]) / 6, 1e-6
    )
