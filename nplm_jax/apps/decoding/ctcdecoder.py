"""CTC beam search without a lexicon, with the interface of pyctcdecode and any model.

    from nplm_jax.decoding import build_ctcdecoder

    decoder = build_ctcdecoder(labels, 'lm.arpa', alpha=0.5, beta=1.5)  # or a run, a packed model, several to mix
    text = decoder.decode(logits)

The score of a hypothesis is the log-probability of all its alignments, plus for each word `alpha` times its natural
log P and `beta`, plus `alpha` times log P of the end. `unk_score_offset`,
a negative number, is added to log10 P of a word outside `unigrams`. It is also added to the total while the last,
incomplete word is a prefix of no word in `unigrams`, times its length / 6 beyond six characters.

Each complete hotword adds `hotword_weight` to the score. While it is being spelled, its beginning is lent a share of
the weight, that of its characters. This keeps hypotheses in addition to those kept without hotwords: a hypothesis
gives way only to hypotheses that are better both with and without hotwords. What is lent never counts in a result, so
a text changes only if more hotwords are found. A negative weight lends nothing: among the texts kept without hotwords,
those with fewer of them rank higher.

Differences: the vocabulary of every model is known, not that of ARPA files alone; a text that ends with a space is not
followed by an unknown word; `▁⁇▁` ends a word in each hypothesis on its own; the frames of words are those of the most
probable alignment of the text; hotwords displace no other hypotheses; values within [0, 1] are never read as logits.

Dims: F frames, N labels.

References:
    Hannun et al., First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014.
    https://github.com/kensho-technologies/pyctcdecode
"""

from __future__ import annotations

import copy
import functools
import os
import pathlib
import warnings
import weakref
from collections.abc import Iterable
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, ClassVar, NamedTuple

import numpy as np

from nplm_jax.apps.decoding import decoder_folders
from nplm_jax.apps.decoding.ctc_scores import Hotwords, WordCounter, WordScorer
from nplm_jax.apps.decoding.ctc_search import Result, search
from nplm_jax.apps.decoding.frames import log_probabilities
from nplm_jax.apps.decoding.labels import Alphabet
from nplm_jax.apps.decoding.prefixes import Limits
from nplm_jax.apps.decoding.spelled_prefixes import SpelledPrefixes, word_frames
from nplm_jax.kenlm import model as kenlm
from nplm_jax.utils.errors import BadInput, require

DEFAULT_BEAM_WIDTH, DEFAULT_HOTWORD_WEIGHT = 100, 10.0  # names of pyctcdecode
DEFAULT_PRUNE_LOGP, DEFAULT_MIN_TOKEN_LOGP = -10.0, -5.0
WordFrames = tuple[str, tuple[int, int]]  # a word, its first frame and the frame after its last one


class OutputBeam(NamedTuple):
    """A result of the search.

    Attributes:
        text: Its words.
        last_lm_state: The state of the model after them; None without a model.
        text_frames: The frames of each word.
        logit_score: Log-probability of its alignments.
        lm_score: The total.
    """

    text: str
    last_lm_state: kenlm.State | None
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float


class BatchBeam(NamedTuple):
    """An `OutputBeam` without the state."""

    text: str
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float


class BeamSearchDecoderCTC:
    """A prefix beam search over labels, whose words a model scores.

    Attributes:
        model_container: The models of all decoders, so that the processes of a pool share them. A model stays until
            its decoder is deleted.
    """

    _ALPHABET_SERIALIZED_FILENAME: ClassVar[str] = decoder_folders.ALPHABET
    _LANGUAGE_MODEL_SERIALIZED_DIRECTORY: ClassVar[str] = decoder_folders.LANGUAGE_MODEL
    model_container: ClassVar[dict[bytes, WordScorer | None]] = {}

    def __init__(self, alphabet: Alphabet, language_model: WordScorer | None = None) -> None:
        """Takes the labels and the model. `build_ctcdecoder` makes both."""
        self._alphabet, self._model_key = alphabet, os.urandom(16)
        self.model_container[self._model_key] = language_model
        weakref.finalize(self, self.model_container.pop, self._model_key, None)

    def __copy__(self) -> BeamSearchDecoderCTC:
        return type(self)(self._alphabet, self._language_model)

    def __deepcopy__(self, memo: dict[int, Any]) -> BeamSearchDecoderCTC:
        return copy.copy(self)  # of the same model

    @property
    def _language_model(self) -> WordScorer | None:
        if self._model_key not in self.model_container:
            reason = 'cleanup() was called, or the pool was made before the decoder'
            raise BadInput('decoder', f'its model is not in this process: {reason}')
        return self.model_container[self._model_key]

    def cleanup(self) -> None:
        """Forgets the model."""
        self.model_container.pop(self._model_key, None)

    def save_to_dir(self, filepath: str | os.PathLike) -> None:
        """Writes `alphabet.json`, and for a model `language_model/` with its unigrams, weights and ARPA file or run.

        Args:
            filepath: The folder, which may exist.

        Raises:
            BadInput: The model is a mixture, which has no file of its own.
        """
        decoder_folders.write(pathlib.Path(filepath), self._alphabet, self._language_model)

    @classmethod
    def load_from_dir(cls, filepath: str | os.PathLike, unigram_encoding: str = 'utf-8') -> BeamSearchDecoderCTC:
        """Returns the decoder that `save_to_dir`, also that of pyctcdecode, wrote.

        Args:
            filepath: The folder.
            unigram_encoding: The encoding of `unigrams.txt`.

        Raises:
            BadInput: A file is missing or damaged; or the model is a binary file of KenLM.
        """
        return cls(*decoder_folders.read(pathlib.Path(filepath), unigram_encoding))

    def reset_params(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        unk_score_offset: float | None = None,
        lm_score_boundary: bool | None = None,
    ) -> None:
        """Changes those that are not None. Without a model it does nothing. Raises BadInput as `build_ctcdecoder`."""
        if self._language_model:
            self._language_model.set_weights(alpha, beta, unk_score_offset, lm_score_boundary)

    def decode(
        self,
        logits: np.ndarray,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: kenlm.State | None = None,
    ) -> str:
        """Returns the best text; see `decode_beams`, of which it is the first with `prune_history`."""
        limits = Limits(beam_width, beam_prune_logp, token_min_logp, True)
        return ' '.join(self._search(logits, limits, hotwords, hotword_weight, lm_start_state)[0].text.words())

    def decode_beams(
        self,
        logits: np.ndarray,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = False,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: kenlm.State | None = None,
    ) -> list[OutputBeam]:
        """Returns what the search ends with, different texts, best first.

        Args:
            logits: Probabilities, log-probabilities or logits of the labels, F x N. Values within [0, 1] are
                probabilities, and each frame must sum to one, apart from rounding in float16, bfloat16 or uint8. Frames
                are normalised.
            beam_width: The most hypotheses that are kept after each frame.
            beam_prune_logp: How far below the best one others are kept, as a negative number.
            token_min_logp: Labels with a smaller log-probability are skipped, except the best of the frame.
            prune_history: Keep only the best of hypotheses that the model cannot distinguish.
            hotwords: Words that are worth more, also as phrases. The model need not know them. A warning names those
                that the labels cannot spell. They keep up to `beam_width` hypotheses more.
            hotword_weight: Added for each of them that is complete.
            lm_start_state: `last_lm_state` of what was said before.

        Raises:
            BadInput: The logits have another shape, are no numbers, or are probabilities of which a frame does not sum
                to one; or an option is none that is allowed.
        """
        limits = Limits(beam_width, beam_prune_logp, token_min_logp, prune_history)
        beams, labels = [], self._alphabet.parsed_labels()
        for result in self._search(logits, limits, hotwords, hotword_weight, lm_start_state):
            words = result.text.words()
            frames = list(zip(words, word_frames(result.path, labels)))
            beams.append(OutputBeam(' '.join(words), result.text.state, frames, result.logit_score, result.score))
        return beams

    def decode_batch(self, pool: Any, logits_list: Iterable[np.ndarray], **options: Any) -> list[str]:
        """Returns the best text of each utterance; see `decode_beams_batch`."""
        return self._map(pool, functools.partial(self.decode, **options), logits_list)

    def decode_beams_batch(self, pool: Any, logits_list: Iterable[np.ndarray], **options: Any) -> list[list[BatchBeam]]:
        """Returns what `decode_beams` does for each utterance, without states.

        Args:
            pool: A pool of processes that were forked after the decoder was built; None for none. A network, which a
                forked process cannot run, decodes here.
            logits_list: The logits of each utterance.
            **options: Those of `decode_beams`, by name.
        """
        return self._map(pool, functools.partial(self._batch_beams, **options), logits_list)

    def _batch_beams(self, logits: np.ndarray, **options: Any) -> list[BatchBeam]:
        beams = self.decode_beams(logits, **options)
        return [BatchBeam(beam.text, *beam[2:]) for beam in beams]

    def _map(self, pool: Any, decode: Any, logits_list: Iterable[np.ndarray]) -> list[Any]:
        lm, context = self._language_model, getattr(pool, '_ctx', None) or getattr(pool, '_mp_context', None)
        starts_anew = isinstance(context, (SpawnContext, ForkServerContext))
        if pool is None or starts_anew or (lm is not None and lm.is_network):
            return [decode(logits) for logits in logits_list]
        return list(pool.map(decode, logits_list))

    def _search(
        self,
        logits: np.ndarray,
        limits: Limits,
        hotwords: Iterable[str] | None,
        hotword_weight: float,
        state: kenlm.State | None,
    ) -> list[Result]:
        """Checks what `decode` and `decode_beams` are given, and searches."""
        limits.check()
        lm, allowed = self._language_model, 'must be None, or with a model the last_lm_state of an earlier result'
        require(state is None or (lm is not None and isinstance(state, kenlm.State)), 'lm_start_state', state, allowed)
        words = Hotwords(hotwords, hotword_weight)
        if unspellable := self._alphabet.unspellable(words.words):
            warnings.warn(f'hotwords={unspellable}: ignored, the labels cannot spell them', stacklevel=3)
        log_p_FxN = log_probabilities(logits, len(self._alphabet.labels))
        scorer = lm or WordCounter()
        begin = scorer.get_start_state() if state is None else state
        return search(log_p_FxN, SpelledPrefixes(self._alphabet.parsed_labels(), scorer, words, begin), limits)


def build_ctcdecoder(
    labels: Iterable[str],
    kenlm_model: kenlm.Model | kenlm.Source | Iterable[kenlm.Source] | None = None,
    unigrams: Iterable[str] | None = None,
    alpha: float = 0.5,
    beta: float = 1.5,
    unk_score_offset: float = -10.0,
    lm_score_boundary: bool = True,
    *,
    kenlm_model_path: kenlm.Path | None = None,
) -> BeamSearchDecoderCTC:
    """Builds a decoder.

    Args:
        labels: The labels of the acoustic model, in the order of its outputs: characters, or subwords. The space is ' '
            or `|`. The blank is '', `<pad>`, `[PAD]` or `_`; else it is the column after the last label.
        kenlm_model: What `nplm_jax.kenlm.Model` takes, or such a model; None for none.
        unigrams: The known words; by default the vocabulary of the model.
        alpha: Weight of log P of the words.
        beta: Added for each word.
        unk_score_offset: Added to log10 P of an unknown word.
        lm_score_boundary: Whether texts begin and end as sentences do.
        kenlm_model_path: pyctcdecode's name of `kenlm_model`.

    Raises:
        BadInput: The labels are not different or spell no known word, no model can be loaded, or a number is none.
    """
    alphabet = Alphabet.build_alphabet(labels)
    both = kenlm_model is not None and kenlm_model_path is not None
    require(not both, 'kenlm_model_path', kenlm_model_path, 'is another name of kenlm_model: give one of them')
    given = kenlm_model if kenlm_model_path is None else kenlm_model_path
    if given is None:
        require(unigrams is None, 'unigrams', unigrams, 'requires kenlm_model')
        return BeamSearchDecoderCTC(alphabet)
    model = given if isinstance(given, kenlm.Model) else kenlm.Model(given)
    lm = WordScorer(model, unigrams, alpha, beta, unk_score_offset, lm_score_boundary)
    characters = {*''.join(alphabet.labels)}
    can_spell = not lm.words or any(characters.issuperset(word) for word in lm.words)
    example = next(iter(sorted(lm.words)), '')
    allowed = f'no word that the model knows, such as {example!r}, can be spelled in them: upper and lower case differ'
    require(can_spell, 'labels', labels, allowed)
    return BeamSearchDecoderCTC(alphabet, lm)
