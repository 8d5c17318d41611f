"""Tests P(word) for words of several pieces: its sum, its definition, and the product over the words."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from helpers import refuses
from texts import GERMAN, repeated

from configs import text as text_config
from nplm_jax.apps.psycholinguistics import measurement, stimuli
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer, to_alphabet
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.runs import experiment, loading

TOKENS = ('<rare>', 'a', 'b', 'Ġa', 'Ġb', 'Ċ', '.')
IDS = {token: i for i, token in enumerate(TOKENS)}
BLANK = [IDS[token] for token in ('<rare>', 'Ġa', 'Ġb', 'Ċ')]
LETTERS = 4  # length of the longest enumerated words


@dataclasses.dataclass(frozen=True)
class Letters(ByteTokenizer):
    """A tokenizer with letters as tokens; a space belongs to the letter after it."""

    @property
    def tokens(self):
        return TOKENS

    def cut(self, strings, known=None):
        return [[to_alphabet(string)] for string in strings]

    pattern = r' ?[a-b]|[\s\S]'


class Bigram(LanguageModel):
    """A bigram model of tokens; within a word, the next token continues the word with probability 0.01 to 0.02."""

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


MODEL = LoadedModel(Settings(), Vocabulary(TOKENS, (0, 5, 5, 5, 5, 3, 4), Letters()), Bigram())
P = np.exp(MODEL.model.log_p_VxV)
WORDS = [''.join(word) for n in range(1, LETTERS + 1) for word in itertools.product('ab', repeat=n)]


def measure(lines, **options):
    found = stimuli.from_text('\n'.join(lines), 'text')
    columns = measurement.measure({'net': MODEL}, found, measurement.Options(**options))
    return found, {key: np.array(column) for key, column in columns.items()}


def probability(word, after, ends=tuple(BLANK)):
    """Returns P(word) after a token by its definition, summed over all tokens that may follow the word."""
    begins_space = IDS[after] != IDS['Ċ']
    tokens = [('Ġ' if begins_space else '') + word[0], *word[1:]]
    starts = [i for i in range(len(TOKENS)) if (i in BLANK) == begins_space]
    p = 1 / P[IDS[after], starts].sum()
    for before, token in zip([after, *tokens], tokens):
        p *= P[IDS[before], IDS[token]]
    return p * P[IDS[tokens[-1]], list(ends)].sum()


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


def test_the_probabilities_of_all_words_in_a_place_sum_to_one(monkeypatch):
    """Without line ends, marks and <rare>, a text can contain only words of two letters."""
    p_VxV = P.copy()
    p_VxV[:, [0, IDS['Ċ'], IDS['.']]] = 0
    p_VxV[:, [1, 2]] *= 0.2
    p_VxV[IDS['Ċ'], [1, 2]] *= 100
    p_VxV /= p_VxV.sum(axis=1, keepdims=True)
    with np.errstate(divide='ignore'):
        monkeypatch.setattr(MODEL.model, 'log_p_VxV', np.log(p_VxV))
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


def test_the_words_of_an_item_telescope_to_its_tokens():
    """The boundary after a word is the boundary before the next word, so only the first and the last remain."""
    _, columns = measure(['ab b aab a'])
    _, sums = measure(['ab b aab a'], word_probability='sum')
    others = [i for i in range(len(TOKENS)) if i not in BLANK]
    ends = math.log2(P[IDS['Ġa'], BLANK].sum()) - math.log2(P[IDS['Ċ'], others].sum())
    assert columns['surprisal_net'].sum() == pytest.approx(sums['surprisal_net'].sum() - ends, abs=1e-9)


def test_words_before_and_after_marks_sum_to_one_without_their_punctuation(monkeypatch):
    p_VxV = P.copy()
    p_VxV[:, [1, 2]] *= 0.2
    p_VxV[IDS['Ċ'], [1, 2]] *= 100
    p_VxV[:, [0, IDS['Ċ']]] = 0
    p_VxV[IDS['Ċ'], IDS['.']] = 0
    p_VxV /= p_VxV.sum(axis=1, keepdims=True)
    with np.errstate(divide='ignore'):
        monkeypatch.setattr(MODEL.model, 'log_p_VxV', np.log(p_VxV))
    for before in ('', 'ab ', 'ba. ', '.'):
        for after in ('', '.'):
            found, columns = measure([f'{before}{word}{after}' for word in WORDS], punctuation='word')
            last = [rows[-1] for rows in found.items]
            assert (2.0 ** -columns['surprisal_net'][last]).sum() == pytest.approx(1, abs=1e-6)


def test_a_mark_inside_a_word_is_a_part_of_it():
    _, columns = measure(['a.b'], punctuation='word')
    others, ends = [i for i in range(len(TOKENS)) if i not in BLANK], [*BLANK, IDS['.']]
    path = [IDS[token] for token in ('Ċ', 'a', '.', 'b')]
    p = math.prod(P[i, j] for i, j in itertools.pairwise(path)) * P[IDS['b'], ends].sum() / P[IDS['Ċ'], others].sum()
    assert 2.0 ** -columns['surprisal_net'][0] == pytest.approx(p, rel=1e-9)


def test_a_context_keeps_its_line_ends_and_after_one_no_blank_stands():
    _, columns = measure(['ab'], context='b\na\n')
    assert columns['tokens'].tolist() == ['a b'] and len(columns['starts_after'][0].split()) == 4
    assert 2.0 ** -columns['surprisal_net'][0] == pytest.approx(probability('ab', 'Ċ'))
    _, columns = measure(['ab'], context='b\na ')
    assert columns['tokens'].tolist() == ['␣a b'] and len(columns['starts_after'][0].split()) == 3


def test_pieces_have_no_frequency_of_words():
    _, columns = measure(['ab a'], spillover=1)
    assert np.isnan(columns['log_frequency']).all() and columns['in_vocabulary'].all()


def test_words_have_no_sum_of_their_own():
    model = LoadedModel(Settings(), Vocabulary(('<rare>', 'a'), (1, 2)), MODEL.model)
    with refuses('word_probability'):
        found = stimuli.from_text('a', 'text')
        measurement.measure({'net': model}, found, measurement.Options(word_probability='sum'))


@pytest.fixture(scope='module')
def minicons_and_run(tmp_path_factory):
    """A network over pieces, and minicons' scorer for its export."""
    scorers = pytest.importorskip('minicons.scorer', reason='pip install minicons')
    transformers = pytest.importorskip('transformers', reason='pip install transformers')
    huggingface = pytest.importorskip('nplm_jax.apps.export.huggingface', reason='the app is deleted')
    folder = tmp_path_factory.mktemp('minicons')
    (folder / 'text.txt').write_text(repeated(GERMAN), encoding='utf-8')
    changes = {'corpus.path': str(folder / 'text.txt'), 'corpus.tokens': 'pieces', 'corpus.pieces': 400}
    sizes = {'model.n': 5, 'model.m': 8, 'model.h': 12, 'train.epochs': 2, 'train.batch_size': 16}
    experiment.run(config_lib.override(text_config.get_config(), {**changes, **sizes}), folder / 'run')
    loaded = loading.load(folder / 'run')
    settings, words, model = loaded.settings, loaded.vocabulary, loaded.model
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('HF_MODULES_CACHE', str(folder / 'modules'))
        patch.setenv('HF_HUB_OFFLINE', '1')
        huggingface.write_folder(model, words, settings, folder / 'hf')
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / 'hf', trust_remote_code=True)
        network = transformers.AutoModelForCausalLM.from_pretrained(folder / 'hf', trust_remote_code=True)
        yield scorers.IncrementalLMScorer(network, 'cpu', tokenizer=tokenizer), loaded


SENTENCES = ('Alle Menschen sind frei geboren.', 'Niemand darf »willkürlich« festgenommen werden, Hund!')


@pytest.mark.parametrize('sentence', SENTENCES)
@pytest.mark.parametrize('kind', ['sum', 'corrected'])
def test_minicons_gives_the_same_words(minicons_and_run, monkeypatch, sentence, kind):
    """minicons' beginning-of-word correction treats only spaces as white space, and omits the first word."""
    scorer, loaded = minicons_and_run
    words = loaded.vocabulary
    blanks = np.array([word.startswith('Ġ') for word in words.words])
    groups = list(map(np.flatnonzero, (blanks, ~blanks, blanks, ~blanks)))
    if kind == 'corrected':
        monkeypatch.setattr('nplm_jax.apps.psycholinguistics.token_table.find_groups', lambda *_: groups)
    options = measurement.Options(word_probability=kind)
    columns = measurement.measure({'net': loaded}, stimuli.from_text(sentence, 'text'), options)
    assert columns['starts_after'][0] == words.shown[words.ids['Ċ']]
    correct = {'bow_correction': True} if kind == 'corrected' else {}
    (found,) = scorer.token_score([f'\n{sentence}'], surprisal=True, base_two=True, **correct)
    assert [token for token, _ in found] == words.tokenize(f'\n{sentence}')
    stops = 1 + np.cumsum([0, *columns['num_tokens']])  # the line end is the first token, which has no score
    theirs = np.array([sum(bits for _, bits in found[a:b]) for a, b in itertools.pairwise(stops)])
    if kind == 'corrected':
        log_p_V = loaded.model.next_word(words.encode(['Ċ'])[None])[0].astype(np.float64)
        theirs[0] += math.log2(np.exp(log_p_V[~blanks]).sum())
    np.testing.assert_allclose(columns['surprisal_net'], theirs, atol=1e-5)
