"""Tests P of any word: sums over all strings, results by hand, and agreement with the closed-vocabulary model."""

import itertools
import math

import numpy as np
import pytest
from helpers import make_model, refuses

from nplm_jax.data import characters
from nplm_jax.data.characters import END, NUM_CHARACTERS
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import RARE, UNKNOWN, Span
from nplm_jax.data.vocabulary import Vocabulary, build
from nplm_jax.data.word_stream import WordStream
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.open_vocabulary import OpenVocabulary, bits_per_character, count_characters
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.ngram import counts, interpolated, kneser_ney, unsmoothed

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

CHARACTERS = Vocabulary((RARE, END, 'a', 'b'), (1, 4, 3, 2))
KNOWN = Vocabulary((RARE, 'a', 'ab', 'the'), (2, 4, 3, 2))
NUM_OTHER = NUM_CHARACTERS - 2


class Table(LanguageModel):
    """A model that reads P(w | last word) from a table."""

    n = 2

    def __init__(self, p_VxV):
        self.log_p_VxV = np.log(np.array(p_VxV, np.float32))

    def score_span(self, tokens_T, span):
        before_T = np.concatenate([[0], tokens_T])[span.start : span.stop]
        return self.log_p_VxV[before_T, tokens_T[span.start : span.stop]]

    def next_word(self, contexts_BxN):
        return self.log_p_VxV[contexts_BxN[:, -1]]


# P of <rare>, <end>, a, b after each of them
BIGRAM = Table([[0.1, 0.4, 0.3, 0.2], [0.1, 0.1, 0.5, 0.3], [0.2, 0.3, 0.1, 0.4], [0.1, 0.6, 0.2, 0.1]])


def network_over_characters():
    return make_model(len(CHARACTERS), {'model.n': 5}, seed=3)


def by_hand(string):
    """Returns Q of a string by BIGRAM, with one factor per character."""
    ids = [1, *(CHARACTERS.ids.get(c, 0) for c in string), 1]
    p = math.prod(math.exp(BIGRAM.log_p_VxV[a, b]) for a, b in zip(ids, ids[1:]))
    return p / NUM_OTHER ** sum(c not in 'ab' for c in string)


def test_a_spelling_is_the_product_of_its_characters_over_the_share_outside_the_vocabulary():
    spelling = Spelling(BIGRAM, CHARACTERS, KNOWN)
    assert by_hand('ba') == pytest.approx(0.3 * 0.2 * 0.3, rel=1e-6)
    assert by_hand('é') == pytest.approx(0.1 * 0.4 / NUM_OTHER, rel=1e-6)
    outside = 1 - by_hand('') - by_hand('a') - by_hand('ab') - by_hand('the')
    found = spelling.log_probabilities(['ba', 'é', 'bb', 'ba'])
    expected = [math.log(by_hand(word) / outside) for word in ('ba', 'é', 'bb', 'ba')]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert spelling.log_probabilities(['a', 'ab']).tolist() == [-math.inf, -math.inf]
    assert spelling.log_probabilities([]).shape == (0,)


@pytest.mark.parametrize('make', [lambda: BIGRAM, network_over_characters])
def test_the_spellings_up_to_a_length_and_the_longer_ones_sum_to_one(make):
    model, longest = make(), 5
    spelling = Spelling(model, CHARACTERS, KNOWN)
    shown = 'ab\N{SNOWMAN}'  # the snowman stands for all other characters, which are equally likely
    words = [''.join(s) for length in range(1, longest + 1) for s in itertools.product(shown, repeat=length)]
    times = np.array([float(NUM_OTHER) ** word.count('\N{SNOWMAN}') for word in words])
    total = float((np.exp(spelling.log_probabilities(words)) * times).sum())
    # Longer strings begin with `longest + 1` characters other than the end.
    lines = [np.concatenate([spelling.prefix, s]).astype(np.int32) for s in itertools.product((0, 2, 3), repeat=6)]
    longer = sum(math.exp(log_p_T[len(spelling.prefix) :].sum(dtype=float)) for log_p_T in model.score_lines(lines))
    assert total + longer / math.exp(spelling.log_outside) == pytest.approx(1, abs=1e-5)
    assert 0.01 < longer < 0.9  # so that both parts count


def test_any_string_without_a_blank_has_a_probability_and_others_are_refused():
    spelling = Spelling(network_over_characters(), CHARACTERS, KNOWN)
    words = ['x', '日本語', '\x00', '\U0010ffff', '<rare>', END, 'a' * 1000]
    assert np.isfinite(spelling.log_probabilities(words)).all()
    for word in ('', 'a b', 'a\n', '\u3000', '\x1c', '\ud800'):
        with refuses('word'):
            spelling.log_probabilities(['b', word])


def test_the_blanks_are_those_at_which_a_text_is_cut():
    every = [chr(i) for i in range(0x110000) if not 0xD800 <= i <= 0xDFFF]
    assert {c for c in every if len(f'a{c}b'.split()) == 2} == characters.BLANKS
    assert len(every) - len(characters.BLANKS) == NUM_CHARACTERS


def test_a_vocabulary_of_words_is_no_vocabulary_of_characters():
    with refuses('characters'):
        Spelling(BIGRAM, KNOWN, KNOWN)


# --- the corpus of characters ------------------------------------------------------------------------------


def test_the_contexts_of_a_character_do_not_reach_into_another_word():
    corpus = Corpus(
        Span(0, 6), Span(6, 8), Span(8, 10), WordStream.from_words('the ab the cab the ab the x the aé'.split())
    )
    words = characters.rare_words(corpus, build(corpus.words, min_count=3))
    assert words == {'train': ['ab', 'cab', 'ab'], 'valid': ['x'], 'test': ['aé']}
    data = characters.build_dataset(words, num_context=3)
    assert set(data.vocabulary.words) == {RARE, END, 'a', 'b'}  # c occurs once: it stands for unseen characters
    read = data.vocabulary.decode(data.tokens_T)
    assert read[:12] == [END, END, END, 'a', 'b', END, END, END, RARE, 'a', 'b', END]
    assert [data.vocabulary.decode(data.tokens_T[s.start : s.stop])[3] for s in data.splits.values()] == [
        'a',
        '<rare>',
        'a',
    ]
    assert (data.train.stop, data.valid.stop, data.test.stop) == (data.valid.start, data.test.start, len(read))
    first = [t for t, symbol in enumerate(read) if symbol != END and read[t - 1] == END]
    assert len(first) == 5 and all(read[t - 3 : t] == [END, END, END] for t in first)


def test_a_split_without_rare_words_is_refused():
    with refuses('valid'):
        characters.build_dataset({'train': ['ab'], 'valid': [], 'test': ['a']}, 2)


# --- models of words ---------------------------------------------------------------------------------------

TEXT = 'the ab the zz the a the ab ab bb the qé a the ab the a the ab zz the'.split()
TOKENS = KNOWN.encode(TEXT)


def network():
    return make_model(len(KNOWN))


def gru():
    return make_model(len(KNOWN), {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}, seed=1)


def trigram():
    return kneser_ney.fit_modified(counts.count(TOKENS, Span(0, len(TEXT)), 3, len(KNOWN)))


MODELS = {
    'network': network,
    'gru': gru,
    'kneser_ney': trigram,
    'add_delta': lambda: unsmoothed.add_delta(counts.count(TOKENS, Span(0, len(TEXT)), 2, len(KNOWN)), 0.5),
    'interpolated': lambda: interpolated.fit(TOKENS, Span(0, 12), Span(12, 20), len(KNOWN)),
    'mixture': lambda: mixture.equal([network(), trigram()]),
}


@pytest.mark.parametrize('name', MODELS)
def test_known_words_keep_their_probability_and_others_have_that_of_rare_times_their_spelling(name):
    model, spelling = MODELS[name](), Spelling(BIGRAM, CHARACTERS, KNOWN)
    scored = OpenVocabulary(model, KNOWN, spelling).score(TEXT)
    closed_T = model.score(KNOWN.encode(TEXT), Span(0, len(TEXT)))
    known = np.array([word in KNOWN.ids for word in TEXT])
    np.testing.assert_array_equal(scored.spelled_T, ~known)
    np.testing.assert_array_equal(scored.log_p_T[known], closed_T[known])
    spelled = [word for word in TEXT if word not in KNOWN.ids]
    assert spelled == ['zz', 'bb', 'qé', 'zz']
    expected = closed_T[~known].astype(float) + spelling.log_probabilities(spelled)
    np.testing.assert_allclose(scored.log_p_T[~known], expected, rtol=1e-12)
    part = OpenVocabulary(model, KNOWN, spelling).score(TEXT, Span(3, 9))
    np.testing.assert_allclose(part.log_p_T, scored.log_p_T[3:9], rtol=1e-6)


def test_the_unknown_words_of_a_text_are_not_spelled():
    opened, words = OpenVocabulary(trigram(), KNOWN, Spelling(BIGRAM, CHARACTERS, KNOWN)), ['the', *UNKNOWN, 'zz']
    assert opened.score(words).spelled_T.tolist() == [False] * 4 + [True]
    log_p_T = opened.log_spellings(words)
    assert log_p_T[:4].tolist() == [0, 0, 0, 0] and log_p_T[4] < 0


@pytest.mark.parametrize('name', MODELS)
def test_a_spelled_word_is_rare_in_the_contexts_of_the_next_words(name):
    model, spelling = MODELS[name](), Spelling(BIGRAM, CHARACTERS, KNOWN)
    scored = OpenVocabulary(model, KNOWN, spelling).score(TEXT)
    for t in range(4, 9):
        next_word = model.next_word(KNOWN.encode(TEXT[:t])[None])[0]
        word_id = KNOWN.ids.get(TEXT[t], 0)
        expected = next_word[word_id] + (0 if word_id else spelling.log_probabilities([TEXT[t]])[0])
        assert scored.log_p_T[t] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize('name', MODELS)
def test_the_words_of_the_vocabulary_and_all_spellings_sum_to_one(name):
    spelling = Spelling(BIGRAM, CHARACTERS, KNOWN)
    opened, before, longest = OpenVocabulary(MODELS[name](), KNOWN, spelling), ['the', 'zz', 'ab'], 5

    def probability(word):
        return math.exp(opened.score([*before, word], Span(3, 4)).log_p_T[0])

    strings = {''.join(s) for length in range(1, longest + 1) for s in itertools.product('ab', repeat=length)}
    total = sum(map(probability, strings | set(KNOWN.words[1:])))
    # Powers of the table give the Q of longer strings of a and b; the rest belongs to strings with another character.
    p_VxV = np.exp(BIGRAM.log_p_VxV.astype(float))
    q_by_length = [p_VxV[1, 2:] @ np.linalg.matrix_power(p_VxV[2:, 2:], k) @ p_VxV[2:, 1] for k in range(300)]
    other = 1 - by_hand('') - by_hand('the') - sum(q_by_length)
    p_rare = probability('zz') / math.exp(spelling.log_probabilities(['zz'])[0])
    total += p_rare * (sum(q_by_length[longest:]) + other) / math.exp(spelling.log_outside)
    assert total == pytest.approx(1, abs=1e-5)
    assert 0.001 < p_rare * sum(q_by_length[:longest]) < 1 and other > 0.1  # so that every part counts


def test_bits_per_character_by_hand():
    even = Table(np.full((4, 4), 0.25))
    spelling = Spelling(BIGRAM, CHARACTERS, KNOWN)
    scored = OpenVocabulary(even, KNOWN, spelling).score(['the', 'ab', 'the', 'bb'])
    bits = 4 * 2 - math.log2(by_hand('bb')) + spelling.log_outside / math.log(2)
    assert scored.num_characters == 14
    found = bits_per_character(float(scored.log_p_T.sum()), scored.num_characters)
    assert found == pytest.approx(bits / 14, rel=1e-6)
    assert math.isnan(bits_per_character(0.0, 0))
    assert count_characters(['<text>', '<p>', 'a', "'s"]) == 1 + 1 + 2 + 3


def test_a_spelling_of_the_words_outside_another_vocabulary_is_refused():
    other = Vocabulary((RARE, 'x', 'y'), (1, 1, 1))
    with refuses('spelling.vocabulary'):
        OpenVocabulary(BIGRAM, other, Spelling(BIGRAM, CHARACTERS, KNOWN))
