"""CTC beam search over a lexicon with any model, by flashlight-text.

    from nplm_jax import decoding, kenlm

    decoder = decoding.Decoder(kenlm.Model('runs/brown-lstm'), tokens, lexicon, decoding.Weights(1.5, 0.5))
    best = decoder.decode(emissions)[0]

The score of a hypothesis is the log-probability of its best alignment, plus `lm_weight` times that of its words and of
the end of the sentence, plus `word_score` for each word; all logarithms are natural.

Dims: F frames, N tokens.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding import reranking
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.kenlm import model as kenlm
from nplm_jax.utils.errors import BadInput, require

END = '</s>'
_MAX_HOMOPHONES = 6  # that a node of flashlight's trie keeps; it drops the others
_LOG_10 = math.log(10)
# Of the sum of a frame: rounding log P to bfloat16 changes it by entropy / 2^8 at most, 0.045 for 10^5 tokens.
_TOLERANCE = 0.05
Lexicon = Mapping[str, Sequence[Sequence[str]]]  # the spellings of each word, in tokens


@dataclasses.dataclass(frozen=True)
class Weights:
    """What is added to the emissions.

    Attributes:
        lm_weight: Weight of log P of the words.
        word_score: Added for each word.
    """

    lm_weight: float = 1.0
    word_score: float = 0.0


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A result of the search.

    Attributes:
        words: Its words.
        score: The total.
        emission: Log-probability of its best alignment.
        log_p: Log P of its words and of the end, by the model.
    """

    words: tuple[str, ...]
    score: float
    emission: float
    log_p: float


class Decoder:
    """A beam search over the words of a lexicon."""

    def __init__(
        self,
        model: kenlm.Model | LoadedModel | None,
        tokens: Sequence[str],
        lexicon: Lexicon,
        weights: Weights = Weights(),
        *,
        blank: str = '-',
        silence: str = '|',
        beam_size: int = 50,
        beam_size_token: int = 20,
        beam_threshold: float = 25.0,
    ) -> None:
        """Prepares the search.

        Args:
            model: The model, also what `nplm_jax.load` returned; None for none.
            tokens: The tokens of the acoustic model, in the order of its outputs.
            lexicon: The spellings of each word. Words that the model does not know are `<unk>` to it.
            weights: The weights of the model and of the number of words.
            blank: The token of no output.
            silence: The token between words.
            beam_size: The most hypotheses that are kept after each frame.
            beam_size_token: The most tokens that continue a hypothesis.
            beam_threshold: How far below the best hypothesis others are kept.

        Raises:
            BadInput: flashlight-text is missing, a token is, or the model has no end of sentences; or the lexicon is
                empty, has other tokens, or spells more than _MAX_HOMOPHONES words alike.
        """
        try:
            from flashlight.lib.text import decoder as flashlight
        except ImportError:
            raise BadInput('flashlight-text', 'not installed: pip install "nplm-jax[decode]"') from None
        model = kenlm.Model(model) if isinstance(model, LoadedModel) else model
        places = {token: i for i, token in enumerate(tokens)}
        require(len(places) == len(tokens), 'tokens', len(tokens), 'must be different')
        for name, token in (('blank', blank), ('silence', silence)):
            require(token in places, name, token, 'must be one of the tokens')
        require(model is None or END in model, 'model', model, 'has no mark at the end of sentences, which is scored')
        require(bool(lexicon), 'lexicon', '', 'must have a word')
        known = model is None or any(word in model for word in lexicon)
        require(known, 'lexicon', next(iter(lexicon)), 'no word of it is in the vocabulary of the model')
        self.words, self.num_tokens = list(lexicon), len(tokens)
        if model is None:
            self._model = flashlight.ZeroLM()
        else:
            self._model = _make_model(flashlight.LM, flashlight.LMState, model, self.words)
        trie = flashlight.Trie(len(tokens), places[silence])
        start = self._model.start(False)
        homophones: dict[tuple[str, ...], list[str]] = {}
        for i, (word, spellings) in enumerate(lexicon.items()):
            _, log_p = self._model.score(start, i)
            for spelling in dict.fromkeys(map(tuple, spellings)):
                is_spelled = bool(spelling) and all(token in places for token in spelling)
                spelled = f'{word} {" ".join(spelling)}'
                require(is_spelled, 'lexicon', spelled, f'must be spelled in the {len(tokens)} tokens')
                homophones.setdefault(spelling, []).append(word)
                trie.insert([places[token] for token in spelling], i, log_p)
        for spelling, words in homophones.items():
            allowed = f'spells {len(words)} words ({", ".join(words)}); flashlight-text allows {_MAX_HOMOPHONES}'
            require(len(words) <= _MAX_HOMOPHONES, 'lexicon', ' '.join(spelling), allowed)
        trie.smear(flashlight.SmearingMode.MAX)
        beams = beam_size, beam_size_token, beam_threshold
        scores = weights.lm_weight, weights.word_score, -math.inf, 0.0  # the last two: of unknown words, of silence
        options = flashlight.LexiconDecoderOptions(*beams, *scores, False, flashlight.CriterionType.CTC)
        special = places[silence], places[blank], -1
        self._search = flashlight.LexiconDecoder(options, trie, self._model, *special, [], False)

    def decode(self, emissions_FxN: np.ndarray) -> list[Hypothesis]:
        """Returns the hypotheses that the search ends with, different in their words, best first.

        Args:
            emissions_FxN: Log-probabilities of the tokens in each frame.

        Raises:
            BadInput: They have another shape, a number that is no log-probability, or a frame whose probabilities do
                not sum to one.
        """
        emissions_FxN = check_emissions('emissions', emissions_FxN, self.num_tokens)
        results = self._search.decode(emissions_FxN.ctypes.data, *emissions_FxN.shape)
        found: dict[tuple[str, ...], Hypothesis] = {}
        for result in results:
            words = tuple(self.words[i] for i in result.words if i >= 0)
            # Results of the same words end in different tokens; the best comes first.
            found.setdefault(words, Hypothesis(words, result.score, result.emittingModelScore, result.lmScore))
        return list(found.values())


def _make_model(base: Any, make_state: Any, model: kenlm.Model, words: Sequence[str]) -> Any:
    """Returns a model as flashlight's `LM`: log P of words by their places in the lexicon."""

    def log_p_of(state: kenlm.State, word: str, after: kenlm.State) -> float:
        return max(model.BaseScore(state, word, after) * _LOG_10, -1e30)  # the weight may be 0

    class Model(base):
        def start(self, start_with_nothing: bool) -> Any:
            """Returns the state at the beginning of a search, and drops those of the last one."""
            state, begin = make_state(), kenlm.State()
            model.BeginSentenceWrite(begin)
            self._read = {state: (begin, 0.0)}
            return state

        def score(self, state: Any, word: int) -> tuple[Any, float]:
            after = state.child(word)
            if after not in self._read:
                out = kenlm.State()
                self._read[after] = out, log_p_of(self._read[state][0], words[word], out)
            return after, self._read[after][1]

        def finish(self, state: Any) -> tuple[Any, float]:
            return state, log_p_of(self._read[state][0], END, kenlm.State())

    return Model()


def check_emissions(name: str, emissions_FxN: np.ndarray, num_tokens: int) -> np.ndarray:
    """Returns emissions as a float32 matrix in C order.

    Args:
        name: The name in the errors.
        emissions_FxN: The emissions.
        num_tokens: The number of tokens.

    Raises:
        BadInput: They are no matrix of log-probabilities of the tokens; a frame, counted from 0, is named.
    """
    emissions = np.asarray(emissions_FxN)
    is_matrix = emissions.ndim == 2 and emissions.dtype.kind == 'f' and len(emissions) > 0
    require(is_matrix, name, f'{emissions.dtype} {emissions.shape}', 'must be floats, frames x tokens')
    transposed = '; is the array transposed?' if len(emissions) == num_tokens else ''
    columns = f'must have {num_tokens} columns, one a token{transposed}'
    require(emissions.shape[1] == num_tokens, name, emissions.shape, columns)
    bad = bool(np.isnan(emissions).any() or (emissions > 1e-3).any())
    require(not bad, name, emissions.shape, 'must be log-probabilities: no NaN, none above 0')
    sums_F = np.exp(emissions, dtype=np.float64).sum(axis=1)
    if (wrong_F := np.abs(sums_F - 1) > _TOLERANCE).any():
        frame = int(wrong_F.argmax())
        problem = f'the probabilities of frame {frame} sum to {sums_F[frame]:.4g}, must sum to 1{transposed}'
        raise BadInput(name, problem, value=emissions.shape)
    return np.ascontiguousarray(emissions, np.float32)


def tune(lists: Sequence[Sequence[Hypothesis]], references: Sequence[Sequence[str]]) -> tuple[Weights, float]:
    """Finds weights that put hypotheses with few word errors first, by `reranking.tune`.

    Args:
        lists: The hypotheses of each utterance.
        references: Its words.

    Returns:
        The weights, and the word error rate of these lists with them.
    """
    rows = [(h, reference) for hypotheses, reference in zip(lists, references) for h in hypotheses]
    log_p_A = reranking.finite([h.log_p for h, _ in rows])
    scores_AxF = np.array([(h.emission, p, len(h.words)) for (h, _), p in zip(rows, log_p_A)])
    statistics_AxS = np.array([reranking.edit_statistics(h.words, reference) for h, reference in rows], float)
    groups = np.split(np.arange(len(rows)), np.cumsum([len(hypotheses) for hypotheses in lists])[:-1])
    measure = reranking.MEASURES['wer']
    start_F = np.array([1.0, 1.0, 0.0])
    (emission, lm, word), error = reranking.tune(scores_AxF, groups, statistics_AxS, measure.error, start_F)
    if emission <= 0:  # no search has a negative weight of the emissions
        return Weights(), reranking.first_error(scores_AxF @ start_F, groups, statistics_AxS, measure.error)
    return Weights(lm / emission, word / emission), error


def word_error_rate(hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]]) -> float:
    """Returns the insertions, deletions and substitutions of words over the words of the references."""
    statistics = [reranking.edit_statistics(words, reference) for words, reference in zip(hypotheses, references)]
    return reranking.word_error_rate(np.sum(statistics, axis=0))
