"""CTC beam search with any model, over the words of a lexicon or without one.

    from nplm_jax import decoding, kenlm

    decoder = decoding.Decoder(kenlm.Model('runs/brown-lstm'), tokens, lexicon, decoding.Weights(1.5, 0.5))
    best = decoder.decode(emissions)[0]

The score of a hypothesis is the log-probability of all its alignments, plus `lm_weight` times that of its words and of
the end of the sentence, plus `word_score` for each word; all logarithms are natural.

With a lexicon, a hypothesis inside a word has the score of the best word that it can become, by log P at the beginning
of a sentence. Without one, words are what stands between silences, or between subwords that begin with `▁`, and a word
that the model does not know costs what it does in `build_ctcdecoder`.

Dims: F frames, N tokens, A hypotheses of all lists.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding import reranking
from nplm_jax.apps.decoding.ctc_scores import END, Hotwords, Scorer, WordCounter, WordScorer
from nplm_jax.apps.decoding.ctc_search import search
from nplm_jax.apps.decoding.frames import log_probabilities
from nplm_jax.apps.decoding.labels import Alphabet
from nplm_jax.apps.decoding.lexicon import Lexicon, LexiconPrefixes, Trie
from nplm_jax.apps.decoding.prefixes import Limits, Prefixes
from nplm_jax.apps.decoding.spelled_prefixes import SpelledPrefixes
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.kenlm import model as kenlm
from nplm_jax.utils.errors import require


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
        emission: Log-probability of its alignments.
        log_p: Log P of its words and of the end, by the model.
    """

    words: tuple[str, ...]
    score: float
    emission: float
    log_p: float


class Decoder:
    """A beam search whose words a model scores."""

    def __init__(
        self,
        model: kenlm.Model | LoadedModel | None,
        tokens: Sequence[str],
        lexicon: Lexicon | None = None,
        weights: Weights = Weights(),
        *,
        blank: str = '-',
        silence: str = '|',
        beam_width: int = 50,
        beam_prune_logp: float = -25.0,
        token_min_logp: float = -10.0,
    ) -> None:
        """Prepares the search.

        Args:
            model: The model, also what `nplm_jax.load` returned; None for none.
            tokens: The tokens of the acoustic model, in the order of its outputs.
            lexicon: The spellings of each word. Words that the model does not know are `<unk>` to it. None for any
                words that the tokens spell.
            weights: The weights of the model and of the number of words.
            blank: The token of no output.
            silence: The token between words.
            beam_width: The most hypotheses that are kept after each frame.
            beam_prune_logp: How far below the best hypothesis others are kept, as a negative number.
            token_min_logp: Tokens with a smaller log-probability continue no hypothesis.

        Raises:
            BadInput: A token is missing, or the model has no end of sentences; or the lexicon is empty, or has other
                tokens; or a number is none that is allowed.
        """
        model = kenlm.Model(model) if isinstance(model, LoadedModel) else model
        places = {token: i for i, token in enumerate(tokens)}
        require(len(places) == len(tokens), 'tokens', len(tokens), 'must be different')
        require(blank in places, 'blank', blank, 'must be one of the tokens')
        require(model is None or END in model, 'model', model, 'has no mark at the end of sentences, which is scored')
        self._limits = Limits(beam_width, beam_prune_logp, token_min_logp, prune_history=lexicon is None)
        self._limits.check()
        self._lm: Scorer = WordCounter(weights.word_score)
        if model is not None:
            options: dict[str, Any] = {} if lexicon is None else {'unigrams': [], 'unk_score_offset': 0.0}
            self._lm = WordScorer(model, alpha=weights.lm_weight, beta=weights.word_score, **options)
        self._blank, self._num_tokens, self._trie = places[blank], len(tokens), None
        if lexicon is None:
            marks = {blank: '', silence: ' '}
            self._labels = Alphabet.build_alphabet(marks.get(token, token) for token in tokens).parsed_labels()
            return
        require(silence in places, 'silence', silence, 'must be one of the tokens')
        require(bool(lexicon), 'lexicon', '', 'must have a word')
        known_word = model is None or any(word in model for word in lexicon)
        require(known_word, 'lexicon', next(iter(lexicon)), 'no word of it is in the vocabulary of the model')
        self._trie = Trie(lexicon, places, places[silence], self._lm)

    def decode(self, emissions_FxN: np.ndarray) -> list[Hypothesis]:
        """Returns the hypotheses that the search ends with, different in their words, best first.

        Args:
            emissions_FxN: Log-probabilities of the tokens in each frame, or what `decode_beams` takes.

        Raises:
            BadInput: They have another shape, or numbers that are none of these.
        """
        results = search(log_probabilities(emissions_FxN, self._num_tokens), self._prefixes(), self._limits)
        return [Hypothesis(tuple(r.text.words()), r.score, r.logit_score, r.log_p) for r in results]

    def _prefixes(self) -> Prefixes:
        if self._trie:
            return LexiconPrefixes(self._trie, self._lm, Hotwords(), self._blank, self._num_tokens)
        return SpelledPrefixes(self._labels, self._lm, Hotwords(), self._lm.get_start_state())


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
    edits_A = np.array([reranking.word_edits(h.words, reference) for h, reference in rows])
    groups = np.split(np.arange(len(rows)), np.cumsum([len(hypotheses) for hypotheses in lists])[:-1])
    start_F, num_words = np.array([1.0, 1.0, 0.0]), sum(map(len, references))
    (emission, lm, word), edits = reranking.tune(scores_AxF, groups, edits_A, start_F)
    if emission <= 0:  # no search has a negative weight of the emissions
        return Weights(), reranking.first_edits(scores_AxF @ start_F, groups, edits_A) / num_words
    return Weights(lm / emission, word / emission), edits / num_words


def word_error_rate(hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]]) -> float:
    """Returns the insertions, deletions and substitutions of words over the words of the references."""
    pairs = list(zip(hypotheses, references))
    return sum(reranking.word_edits(*pair) for pair in pairs) / sum(len(reference) for _, reference in pairs)
