import jax.numpy as jnp
import numpy as np

from nplm_jax.data import batches, corpora, encoding, vocabulary
from nplm_jax.data.batches import epoch_order, stream_epoch_size, stream_positions
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream


def test_windows_by_hand():
    tokens = jnp.asarray([5, 6, 7, 8, 9], jnp.int32)
    contexts, targets = batches.examples(tokens, jnp.asarray([4, 1, 0], jnp.int32), 3)
    assert contexts.tolist() == [[6, 7, 8], [0, 0, 5], [0, 0, 0]]  # in reading order, <rare> before the start
    assert targets.tolist() == [9, 6, 5]


def test_order_is_a_pure_function_of_seed_and_epoch():
    span = Span(10, 1010)
    first = epoch_order(1, 0, span)
    assert sorted(first.tolist()) == list(range(10, 1010))
    assert first.tolist() == epoch_order(1, 0, span).tolist()
    for other in (epoch_order(1, 1, span), epoch_order(2, 0, span)):
        assert (first != other).mean() > 0.9


def test_streams_read_equal_parts_side_by_side_from_one_word_on():
    train = Span(10, 33)
    assert stream_epoch_size(train, 2, 3) == 18  # three updates of two streams with three words each
    found = stream_positions(1, 0, train, 2, 3, np.arange(18)) - train.start
    steps = [[0, 1, 2, 9, 10, 11], [3, 4, 5, 12, 13, 14], [6, 7, 8, 15, 16, 17]]
    assert ((found - found[0]) % 23).reshape(3, 6).tolist() == steps
    assert found.min() >= 0 and found.max() < 23
    assert stream_positions(1, 0, train, 2, 3, np.array([7])).tolist() == [found[7] + 10]
    starts = {int(stream_positions(1, epoch, train, 2, 3, np.array([0]))[0]) for epoch in range(5)}
    assert len(starts) > 1


def test_unigrams_are_of_the_training_words_and_none_is_impossible():
    corpus = corpora.Corpus(Span(0, 4), Span(4, 5), Span(4, 5), WordStream.from_words('a b a a c'.split()))
    data = encoding.build_dataset(corpus, vocabulary.build(corpus.words))
    assert data.vocabulary.words == ('<rare>', 'a', 'b', 'c')
    np.testing.assert_allclose(
        np.exp(unigram_log_probabilities(data.train_words, 4)), np.array([0.5, 3.5, 1.5, 0.5]) / 6, 1e-6
    )
