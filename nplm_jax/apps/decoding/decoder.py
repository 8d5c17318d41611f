"""CTC beam search with any language model, with or without a lexicon.

    from nplm_jax import decoding, kenlm

    decoder = decoding.Decoder(kenlm.Model('runs/brown-lstm'), tokens, lexicon, decoding.Weights(1.5, 0.5))
    best = decoder.decode(emissions)[0]

The score of a hypothesis is the log-probability of all its alignments, plus `lm_weight` times the log-probability of
its words and of the end of the sentence, plus `word_score` for each word. All logarithms are natural.

With a lexicon, a partial word has the score that its most likely completion would have at the beginning of a sentence.
Hypotheses whose last words agree, so that the model cannot distinguish them, are recombined: the beam keeps the best of
them, and keeps the others only if there is room. Texts that differ from a better text only in earlier words may
therefore be missing from the results. Models with unlimited context distinguish all texts, so nothing is recombined.

Without a lexicon, words are separated by silences or begin with a subword that starts with `▁`, and unknown words are
penalized as in `build_ctcdecoder`.

Dims: F frames, N tokens, A hypotheses in all lists.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding import reranking
from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer, WordCounter, WordScorer, check_finite
from nplm_jax.apps.decoding.ctc_search import search
from nplm_jax.apps.decoding.frames import log_probabilities
from nplm_jax.apps.decoding.labels import Alphabet
from nplm_jax.apps.decoding.lexicon import Lexicon, LexiconPrefixes, Trie
from nplm_jax.apps.decoding.prefixes import Limits, Prefixes
from nplm_jax.apps.decoding.spelled_prefixes import SpelledPrefixes
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.kenlm import model as kenlm
from nplm_jax.ngram.sentence_marks import END
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights of the language model and of the number of words. The weight of the emissions is 1.

    Attributes:
        lm_weight: The weight of log P of the words.
        word_score: The score added for each word.
    """

    lm_weight: float = 1.0
    word_score: float = 0.0


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A result of the search.

    Attributes:
        words: The words.
        score: The total score.
        emission: The log of the total probability of all alignments, in nats.
        log_p: Log P of the words and the end of the sentence under the language model, in nats.
    """

    words: tuple[str, ...]
    score: float
    emission: float
    log_p: float


class Decoder:
    """A CTC beam search decoder with an optional language model and lexicon."""

    _prefixes: Callable[[], Prefixes]  # creates the empty prefix table of a search

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
        """Creates a decoder.

        Args:
            model: The language model, or None to decode without a language model.
            tokens: The tokens of the acoustic model, in the order of its outputs.
            lexicon: The spellings of each word in tokens. Words that the model does not know are scored as `<unk>`.
                None allows all words that the tokens can spell.
            weights: The weights of the language model and of the number of words.
            blank: The CTC blank.
            silence: The token that separates words.
            beam_width: The maximum number of hypotheses to keep after each frame.
            beam_prune_logp: The minimum score of a hypothesis, relative to the score of the best hypothesis. Must not
                be positive.
            token_min_logp: The minimum log-probability of a token in a frame, in nats.

        Raises:
            BadInput: The tokens lack the blank or the silence, or the two are equal. The model has no end-of-sentence
                token, or its tokens are subwords. The lexicon is empty, or a spelling contains the blank or an unknown
                token. No lexicon is given, and the tokens cannot spell any word in the vocabulary. A number is out of
                range.
        """
        model = kenlm.Model(model) if isinstance(model, LoadedModel) else model
        allowed = 'must be an nplm_jax.kenlm.Model, a model loaded by nplm_jax.load, or None'
        require(model is None or isinstance(model, kenlm.Model), 'model', model, allowed)
        for name, weight in vars(weights).items():
            check_finite(name, weight)
        indices = {token: i for i, token in enumerate(tokens)}
        require(len(indices) == len(tokens), 'tokens', len(tokens), 'must be distinct')
        require(blank in indices, 'blank', blank, 'must be one of the tokens')
        require(blank != silence, 'silence', silence, 'must not be the blank')
        require(model is None or END in model, 'model', model, 'must have an end-of-sentence token')
        self._num_tokens = len(tokens)
        self._limits = Limits(
            beam_width, beam_prune_logp, token_min_logp, prune_history=lexicon is None, recombine=lexicon is not None
        )
        self._limits.check()
        lm: Scorer = WordCounter(weights.word_score)
        if model is not None:
            options: dict[str, Any] = {} if lexicon is None else {'unigrams': [], 'unk_score_offset': 0.0}
            lm = WordScorer(model, alpha=weights.lm_weight, beta=weights.word_score, **options)
        if lexicon is None:
            marks = {blank: '', silence: ' '}
            alphabet = Alphabet.build_alphabet(marks.get(token, token) for token in tokens)
            if isinstance(lm, WordScorer):
                alphabet.check_spells(lm.words, 'tokens')
            self._prefixes = functools.partial(SpelledPrefixes, alphabet.parsed_labels(), lm, Hotwords())
            return
        require(silence in indices, 'silence', silence, 'must be one of the tokens')
        require(bool(lexicon), 'lexicon', '', 'must contain at least one word')
        known_word = model is None or any(word in model for word in lexicon)
        require(known_word, 'lexicon', next(iter(lexicon)), 'must contain a word in the vocabulary of the model')
        index = indices.pop(blank)
        trie = Trie(lexicon, indices, indices[silence], lm)
        self._prefixes = functools.partial(LexiconPrefixes, trie, lm, Hotwords(), index, len(tokens))

    def decode(self, emissions_FxN: np.ndarray) -> list[Hypothesis]:
        """Decodes an utterance.

        Args:
            emissions_FxN: Log-probabilities (in nats), probabilities or logits of the tokens in each frame. See
                `ctcdecoder.BeamSearchDecoderCTC.decode_beams`.

        Returns:
            Hypotheses with distinct words, best first.

        Raises:
            BadInput: The array has the wrong shape or type, or the probabilities of a frame do not sum to one.
        """
        results = search(log_probabilities(emissions_FxN, self._num_tokens), self._prefixes(), self._limits)
        return [Hypothesis(tuple(r.text.words()), r.score, r.logit_score, r.log_p) for r in results]


def tune(lists: Sequence[Sequence[Hypothesis]], references: Sequence[Sequence[str]]) -> tuple[Weights, float]:
    """Tunes the weights to minimize the word error rate of the best hypotheses. See `reranking.tune`.

    Args:
        lists: The hypotheses of each utterance.
        references: The reference words of each utterance.

    Returns:
        The tuned weights, and the word error rate that they achieve on these lists.

    Raises:
        BadInput: An utterance has no hypotheses, the references contain no words, or a text is a string.
    """
    require(all(map(len, lists)), 'lists', '', 'must contain at least one hypothesis for each utterance')
    num_words = _count_words(references)
    rows = [(h, reference) for hypotheses, reference in zip(lists, references, strict=True) for h in hypotheses]
    log_p_A = reranking.finite([h.log_p for h, _ in rows])
    scores_AxF = np.array([(h.emission, p, len(h.words)) for (h, _), p in zip(rows, log_p_A)])
    edits_A = np.array([reranking.word_edits(h.words, reference) for h, reference in rows])
    groups = np.split(np.arange(len(rows)), np.cumsum([len(hypotheses) for hypotheses in lists])[:-1])
    start_F = np.array([1.0, 1.0, 0.0])
    (emission, lm, word), edits = reranking.tune(scores_AxF, groups, edits_A, start_F)
    if emission <= 0:  # a search cannot use a negative emission weight
        return Weights(), reranking.first_edits(scores_AxF @ start_F, groups, edits_A) / num_words
    return Weights(lm / emission, word / emission), edits / num_words


def word_error_rate(hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]]) -> float:
    """Returns the word error rate: word insertions, deletions and substitutions per reference word.

    Raises:
        BadInput: The references contain no words, or a text is a string.
    """
    pairs = list(zip(hypotheses, references, strict=True))
    num_words = _count_words([reference for _, reference in pairs])
    return sum(reranking.word_edits(*pair) for pair in pairs) / num_words


def _count_words(references: Sequence[Sequence[str]]) -> int:
    """Returns the total number of words. Raises BadInput if it is 0."""
    num_words = sum(map(len, references))
    require(num_words > 0, 'references', '', 'must contain words; otherwise, the word error rate is undefined')
    return num_words
