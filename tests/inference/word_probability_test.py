"""P(word) from pieces: sums to one by brute force, equals the definition, and its sum is that of the tokens."""

import dataclasses
import importlib.util
import itertools
import math
import types

import numpy as np
import pytest

from configs import text as text_config
from nplm_jax.data import stimuli
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer, to_alphabet
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring, surprisal
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.runs import experiment, keys, loading
from nplm_jax.utils.errors import BadInput

TOKENS = ('<rare>', 'a', 'b', 'Ġa', 'Ġb', 'Ċ', '.')
IDS = {token: i for i, token in enumerate(TOKENS)}
BLANK = [IDS[token] for token in ('<rare>', 'Ġa', 'Ġb', 'Ċ')]
LETTERS = 4  # of the longest words that are enumerated


@dataclasses.dataclass(frozen=True)
class Letters(ByteTokenizer):
    """Letters as tokens; a blank is a part of the letter after it."""

    @property
    def tokens(self):
        return TOKENS

    def cut_all(self, strings):
        return [[to_alphabet(string)] for string in strings]

    pattern = r' ?[a-b]|[\s\S]'


class Bigram(LanguageModel):
    """P of a token after each token; inside a word the next token is a letter with a probability of 0.01 to 0.02."""

    n = 2

    def __init__(self):
        rng = np.random.default_rng(0)
        p_VxV = rng.uniform(0.1, 1, (len(TOKENS), len(TOKENS)))
        p_VxV[:, [1, 2]] *= 0.01
        p_VxV[IDS['Ċ'], [1, 2]] *= 100
        self.log_p_VxV = np.log(p_VxV / p_VxV.sum(axis=1, keepdims=True))

    def score_span(self, tokens_T, span):
        raise NotImplementedError

    def next_word(self, contexts_BxN):
        return self.log_p_VxV[contexts_BxN[:, -1]]


MODEL = types.SimpleNamespace(name='net'), Vocabulary(TOKENS, (0, 5, 5, 5, 5, 3, 4), Letters()), Bigram()
P = np.exp(MODEL[2].log_p_VxV)
WORDS = [''.join(word) for n in range(1, LETTERS + 1) for word in itertools.product('ab', repeat=n)]


def measure(lines, **options):
    found = stimuli.from_text('\n'.join(lines), 'text')
    columns = surprisal.measure({'net': MODEL}, found, surprisal.Options(**options))
    return found, {key: np.array(column) for key, column in columns.items()}


def probability(word, after, ends=tuple(BLANK)):
    """P(word) after a token, by its definition: of all tokens that may follow, those that begin a word alike."""
    begins_blank = IDS[after] != IDS['Ċ']
    tokens = [('Ġ' if begins_blank else '') + word[0], *word[1:]]
    starts = [i for i in range(len(TOKENS)) if (i in BLANK) == begins_blank]
    p = 1 / P[IDS[after], starts].sum()
    for before, token in zip([after, *tokens], tokens):
        p *= P[IDS[before], IDS[token]]
    return p * P[IDS[tokens[-1]], list(ends)].sum()


@pytest.mark.quick
def test_first_words_have_the_probability_of_the_definition():
    _, columns = measure(WORDS)
    p = 2.0 ** -columns['surprisal_net']
    np.testing.assert_allclose(p, [probability(word, 'Ċ') for word in WORDS], rtol=1e-9)
    assert set(columns['scored_as']) == {'corrected'}


def test_words_after_a_word_have_the_probability_of_the_definition():
    found, columns = measure([f'ab {word}' for word in WORDS])
    second = [rows[1] for rows in found.items]
    p = 2.0 ** -columns['surprisal_net'][second]
    np.testing.assert_allclose(p, [probability(word, 'b') for word in WORDS], rtol=1e-9)


@pytest.mark.quick
def test_the_probabilities_of_all_words_in_a_place_sum_to_one(monkeypatch):
    """Without line ends, marks and <rare>, every text is words of two letters, and nothing else has a probability."""
    p_VxV = P.copy()
    p_VxV[:, [0, IDS['Ċ'], IDS['.']]] = 0
    p_VxV[:, [1, 2]] *= 0.2
    p_VxV[IDS['Ċ'], [1, 2]] *= 100
    p_VxV /= p_VxV.sum(axis=1, keepdims=True)
    with np.errstate(divide='ignore'):
        monkeypatch.setattr(MODEL[2], 'log_p_VxV', np.log(p_VxV))
    for before in ('', 'ab ', 'ba a '):
        found, columns = measure([before + word for word in WORDS])
        last = [rows[-1] for rows in found.items]
        assert (2.0 ** -columns['surprisal_net'][last]).sum() == pytest.approx(1, abs=1e-6)
        _, columns = measure([before + word for word in WORDS], word_probability='sum')
        assert abs((2.0 ** -columns['surprisal_net'][last]).sum() - 1) > 5e-4


def test_a_mark_ends_a_word_where_punctuation_is_left_out():
    _, columns = measure(['ab.', 'ab'], punctuation='word')
    p = probability('ab', 'Ċ', (*BLANK, IDS['.']))
    np.testing.assert_allclose(2.0 ** -columns['surprisal_net'], [p, p], rtol=1e-9)
    _, columns = measure(['ab.'])
    expected = probability('ab', 'Ċ', (IDS['.'],)) * P[IDS['.'], BLANK].sum()
    assert 2.0 ** -columns['surprisal_net'][0] == pytest.approx(expected)


def test_the_first_word_after_a_context_carries_its_blank():
    _, columns = measure(['ab'], context='ba')
    assert columns['tokens'].tolist() == ['␣a b'] and columns['starts_after'].tolist() == ['b a']
    assert 2.0 ** -columns['surprisal_net'][0] == pytest.approx(probability('ab', 'a'))


def test_the_sum_is_that_of_the_tokens():
    found, columns = measure(['ab b', 'a'], word_probability='sum')
    lines = [[IDS[t] for t in tokens] for tokens in (['a', 'b', 'Ġb'], ['a'])]
    totals = [-sum(math.log2(P[i, j]) for i, j in zip([IDS['Ċ'], *line], line)) for line in lines]
    sums = [columns['surprisal_net'][rows.start : rows.stop].sum() for rows in found.items]
    assert sums == pytest.approx(totals) and set(columns['scored_as']) == {'sum'}


def test_words_have_no_sum_of_their_own():
    model = MODEL[0], Vocabulary(('<rare>', 'a'), (1, 2)), MODEL[2]
    with pytest.raises(
        BadInput, match='^word_probability=.sum.: does not apply to a model of corpus.tokens=whitespace'
    ):
        found = stimuli.from_text('a', 'text')
        surprisal.measure({'net': model}, found, surprisal.Options(word_probability='sum'))


TEXT = (
    """The dog barks. The dogs bark, and the cat sleeps under the old tree.
A cat sat on the mat. The mats are red, but nobody knows why they were painted.
Many people walked quickly through the garden while children played with a ball.
"""
    * 20
)


@pytest.mark.skipif(importlib.util.find_spec('minicons') is None, reason='minicons is not installed')
def test_the_sum_agrees_with_minicons(tmp_path, nplm_command):
    from minicons import scorer  # noqa: PLC0415 (not a requirement)

    (tmp_path / 'text.txt').write_text(TEXT)
    changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.tokens': 'pieces', 'corpus.pieces': 300}
    sizes = {'model.n': 5, 'model.m': 8, 'model.h': 12, 'train.epochs': 2, 'train.batch_size': 16}
    experiment.run(keys.override(text_config.get_config(), {**changes, **sizes}), tmp_path / 'run')
    nplm_command('export', tmp_path / 'run', '--to=hf', f'--output={tmp_path / "hf"}')
    settings, words, model = loading.load(tmp_path / 'run')
    sentence = 'The dogs sat on the red mat.'
    columns = surprisal.measure(
        {'net': (settings, words, model)},
        stimuli.from_text(sentence, 'text'),
        surprisal.Options(context='', word_probability='sum'),
    )
    other = scorer.IncrementalLMScorer(str(tmp_path / 'hf'), 'cpu', trust_remote_code=True)
    ((*found,),) = other.token_score([sentence], surprisal=True, base_two=True)
    ids = words.encode(words.tokenize(sentence))
    (line,) = scoring.score(model, [ids])
    np.testing.assert_allclose([bits for _, bits in found[1:]], -line.log10_p_T[1:] * math.log2(10), atol=1e-5)
    starts = np.cumsum([0, *columns['num_tokens']])
    sums = [sum(bits for _, bits in found[a:b]) for a, b in zip(starts, starts[1:])]
    np.testing.assert_allclose(columns['surprisal_net'][1:], sums[1:], atol=1e-5)
