"""KenLM's Python interface for all models of this package: ARPA files, runs, packed models and mixtures.

    from nplm_jax import kenlm

    model = kenlm.Model('lm.arpa')                # or the folder of a run, or a list of models to mix
    model.score('the jury said')                  # log10 P of the words and of the end of the sentence
    [line.log10_p_T.sum() for line in model.score_lines(sentences)]  # six times as fast as `score`
    state, after = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(state)
    model.BaseScore(state, 'the', after)          # log10 P of one word; sets `after` to the state after it
    model.next_words([state, after])              # log10 P of each word of model.vocabulary, one row per state

Dims: S states, V words.
"""

import copy
import functools
import itertools
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data import text_checks
from nplm_jax.data.stream import RARE_ID
from nplm_jax.inference import scoring
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.inference.scoring import Line
from nplm_jax.kenlm.mixture_reader import Reader
from nplm_jax.kenlm.opened_models import items, mix, open_model
from nplm_jax.kenlm.readers import Context
from nplm_jax.ngram import sentence_marks
from nplm_jax.reporting import catalog
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand

Path = str | bytes | os.PathLike
Source = Path | LoadedModel
_WORDS = 2**18  # words scored at once
_MIN_WORDS = 100  # minimum number of scored words before a warning about unknown words


class FullScoreReturn(NamedTuple):
    """A word's log10 P, the length of the n-gram that predicts it, and whether the word is outside the vocabulary."""

    log_prob: float
    ngram_length: int
    oov: bool


@functools.total_ordering
class State:
    """The preceding words on which predictions depend. A new state is the empty context, as set by NullContextWrite."""

    __slots__ = ('_context', '_reader')

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._context: Context | None = None

    def _key(self) -> tuple[int, tuple[Any, ...]]:
        words = self._reader.words(self._context) if self._reader and self._context else ()
        return len(words), words[::-1]

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, State) else NotImplemented

    def __lt__(self, other: 'State') -> bool:
        return self._key() < other._key() if isinstance(other, State) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __deepcopy__(self, memo: dict[int, Any]) -> 'State':
        return copy.copy(self)  # does not copy the model


class Model:
    """A language model with the methods of `kenlm.Model`. Invalid input raises BadInput.

    Attributes:
        path: The absolute path of the model, as bytes; empty if the model has no file; a list of paths for a mixture.
        order: The n-gram order: words are predicted from the `order` - 1 preceding words. None for all preceding words.
        vocabulary: The words, in the order of the columns of `next_words`; `<unk>` is first.
        has_subwords: Whether these words are the subwords, characters or bytes of a run's tokenizer.
    """

    def __init__(self, path: Source | Iterable[Source], weights: Sequence[float] | None = None) -> None:
        """Loads a model.

        Args:
            path: An ARPA file, a run, a packed model or a model loaded by `nplm_jax.load`. A list of these is opened as
                a mixture of models, which must have the same vocabulary.
            weights: The mixture weights of several models; equal by default.

        Raises:
            BadInput: A model cannot be loaded, the models have different words, or the weights are invalid.
        """
        sources = [path] if isinstance(path, Source) else items(path)
        is_one = len(sources) == 1
        are_sources = bool(sources) and all(isinstance(source, Source) for source in sources)
        allowed = (
            'must be the path of an ARPA file or a run, a model loaded by nplm_jax.load, or a list of paths and models'
        )
        require(are_sources, 'path', path, allowed)
        self._names = [os.path.abspath(_find(source)) for source in sources]
        self._weights = list(weights) if isinstance(weights, Iterator) else weights  # copies of the model need them
        loaded = [source if isinstance(source, LoadedModel) else None for source in sources]
        paths = [b'' if one and one.folder is None else os.fsencode(name) for one, name in zip(loaded, self._names)]
        # A loaded model may differ from its folder, so copies and pickles contain it.
        again = [one or name for one, name in zip(loaded, self._names)]
        self.path: bytes | list[bytes] = paths[0] if is_one else paths
        self._source = again[0] if is_one else again
        parts = list(map(open_model, self._names, loaded))
        self._reader, self.vocabulary, _, self._end, self._split, tokenizer = mix(self._names, parts, self._weights)
        self.has_subwords = tokenizer is not None and tokenizer.tokens is not None
        self.order = self._reader.order
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}
        if self._end is not None:
            self._ids.setdefault(sentence_marks.END, self._end)
        self._num_words = self._num_unknown = 0  # words scored before the warning about unknown words
        self._has_warned = False

    def score(self, sentence: str | bytes, bos: bool = True, eos: bool = True) -> float:
        """Returns log10 P of a sentence.

        Args:
            sentence: The words without `<s>` and `</s>`. ARPA models split it at whitespace; runs tokenize it in
                the same way as their corpus. Newlines after the words are ignored.
            bos: Whether the first word begins a sentence. Otherwise, its context is empty.
            eos: Whether the last word ends a sentence. If so, the end of the sentence is also scored.
        """
        return sum(log10_p for log10_p, *_ in self.full_scores(sentence, bos, eos))

    def score_lines(self, sentences: Iterable[str | bytes], bos: bool = True, eos: bool = True) -> Iterator[Line]:
        """Scores many sentences in large batches, much faster than `full_scores`.

        Args:
            sentences: The sentences, which are read lazily.
            bos: See `score`.
            eos: See `score`.

        Yields:
            The ids, log10 P and n-gram lengths of the words in each sentence. Unknown words have id 0. The sum of
            `log10_p_T` equals the result of `score`. For the perplexity of several sentences, use `scoring.total`.
        """
        allowed = 'must be a list of sentences; use `score` for one sentence'
        require(not isinstance(sentences, (str, bytes)), 'sentences', sentences, allowed)
        end, ids_of_words = self._check_end(eos), self._ids.get
        ids: list[int] = []
        stops: list[int] = []
        for sentence in sentences:
            ids.extend(map(ids_of_words, self._split(_text(sentence).rstrip('\r\n')), itertools.repeat(RARE_ID)))
            ids.extend(end)
            stops.append(len(ids))
            if len(ids) >= _WORDS:
                yield from self._score_lines(ids, stops, bos, len(end))
                ids, stops = [], []
        if stops:
            yield from self._score_lines(ids, stops, bos, len(end))

    def _score_lines(self, ids: list[int], stops: list[int], bos: bool, num_ends: int) -> Iterator[Line]:
        """Scores sentences, given as concatenated ids and their ends. Each sentence includes `num_ends` end marks."""
        ids_T = np.array(ids, np.int32)
        self._count(len(ids) - num_ends * len(stops), int(np.count_nonzero(ids_T == RARE_ID)))
        log10_p_T, lengths_T = self._reader.score_lines(ids_T, np.array(stops), bos)
        for line in itertools.starmap(slice, itertools.pairwise([0, *stops])):
            yield Line(ids_T[line], log10_p_T[line], lengths_T[line])

    def _check_end(self, eos: bool) -> tuple[int, ...]:
        """Returns the end-of-sentence word if it is to be scored. Raises BadInput if the model has no such word."""
        if eos and self._end is None:
            raise BadInput('eos', 'must be False, because this model has no end-of-sentence word', value=True)
        return (self._end,) if eos and self._end is not None else ()

    def full_scores(
        self, sentence: str | bytes, bos: bool = True, eos: bool = True
    ) -> Iterator[tuple[float, int, bool]]:
        """Yields log10 P, the n-gram length and an unknown flag for each word; see `score` and `BaseFullScore`."""
        context, step = self._reader.begin if bos else self._reader.null, self._reader.step
        ids = [self._ids.get(word, RARE_ID) for word in self._split(_text(sentence).rstrip('\r\n'))]
        self._count(len(ids), ids.count(RARE_ID))
        for word_id in ids:
            log10_p, length, context = step(context, word_id)
            yield log10_p, length, word_id == RARE_ID
        for word_id in self._check_end(eos):
            yield *self._reader.score(context, word_id), False

    def _count(self, words: int, unknown: int) -> None:
        """Warns once if too many of the scored words are unknown; see `text_checks.describe_oov`."""
        self._num_words, self._num_unknown = self._num_words + words, self._num_unknown + unknown
        is_enough = self._num_words >= _MIN_WORDS or 0 < words == unknown
        if is_enough and not self._has_warned:
            if warning := text_checks.describe_oov(self._num_unknown / self._num_words):
                self._has_warned = True
                warnings.warn(warning.removeprefix('warning: '), stacklevel=5)

    def perplexity(self, sentence: str | bytes) -> float:
        """Returns the perplexity per word of a sentence. The end of the sentence is scored and counts as a word."""
        scores = [log10_p for log10_p, *_ in self.full_scores(sentence)]
        return scoring.Totals(len(scores), 0, sum(scores), 0.0).perplexity

    def BeginSentenceWrite(self, state: State) -> None:
        """Sets a state to the beginning of a sentence."""
        self._write(state, self._reader.begin)

    def NullContextWrite(self, state: State) -> None:
        """Sets a state to the empty context."""
        self._write(state, self._reader.null)

    def BaseScore(self, in_state: State, word: str, out_state: State) -> float:
        """Returns log10 P of a word after `in_state`, and sets `out_state` to the state after the word.

        Both states may be the same object.
        """
        log10_p, _, context = self._reader.step(self._read(in_state), self._id(word))
        out_state._reader, out_state._context = self._reader, context
        return log10_p

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """Scores a word as `BaseScore` does. Also returns the n-gram length and whether the word is unknown."""
        word_id = self._id(word)
        log10_p, length, context = self._reader.step(self._read(in_state), word_id)
        self._write(out_state, context)
        return FullScoreReturn(log10_p, length, word_id == RARE_ID)

    def next_words(self, states: Sequence[State]) -> np.ndarray:
        """Returns the float32 log10 P of each word of `vocabulary` after each state, S x V.

        `BaseScore` returns the same values, except for `<s>`. Here, `<s>` has probability zero, because it never
        follows a word.
        """
        contexts = [self._read(state) for state in states]
        return self._reader.next_words(contexts) if contexts else np.zeros((0, len(self.vocabulary)), np.float32)

    @property
    def uses_jax(self) -> bool:
        """Whether the model, or a component of the mixture, is a network and therefore runs in JAX."""
        return self._reader.uses_jax

    def look_up(self, states: Sequence[State]) -> None:
        """Computes the predictions of networks for several states in one batch, so that `BaseScore` can reuse them."""
        self._reader.look_up([self._read(state) for state in states])

    def _id(self, word: str) -> int:
        return self._ids.get(word if type(word) is str else _text(word), RARE_ID)

    def _read(self, state: State) -> Context:
        """Returns the context of a state. Raises BadInput if the state belongs to another model."""
        if state._context is None:
            return self._reader.null
        if state._reader is self._reader:
            return state._context
        raise BadInput('state', 'must be a state of this model, not of another model', value=state)

    def _write(self, state: State, context: Context) -> None:
        state._reader, state._context = self._reader, context

    def __contains__(self, word: str) -> bool:
        return self._id(word) != RARE_ID

    def __repr__(self) -> str:
        return f'<Model from {", ".join(map(os.path.basename, self._names))}>'

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self._weights)


class LanguageModel(Model):
    """An alias of `Model`, which has this name in early versions of KenLM."""


def _find(path: Source) -> pathlib.Path:
    """Returns the path of a file, or of a run given by path or name. Raises BadInput if it does not exist."""
    if isinstance(path, LoadedModel):
        return path.folder or pathlib.Path(path.settings.name)
    file = expand('path', os.fsdecode(path))
    found = file if file.exists() else catalog.expand_run(file)
    require(found.exists(), 'path', str(file), 'the ARPA file or run does not exist')
    return found


def _text(value: str | bytes) -> str:
    """Returns a sentence or a word as a string. Raises BadInput for other types."""
    require(isinstance(value, (str, bytes)), 'text', value, 'must be a str or bytes')
    return value.decode('utf-8', 'replace') if isinstance(value, bytes) else value
