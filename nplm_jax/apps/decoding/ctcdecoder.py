"""CTC beam search without a lexicon, with the interface of pyctcdecode and any language model.

    from nplm_jax.decoding import build_ctcdecoder

    decoder = build_ctcdecoder(labels, 'lm.arpa', alpha=0.5, beta=1.5)  # or a run, a packed model or a mixture
    text = decoder.decode(logits)

The score of a hypothesis is the log-probability of all its alignments, plus `alpha` times log P (nats) of its words and
of the end of the sentence, plus `beta` for each word. `unk_score_offset`, a negative number, is added to log10 P of
words outside `unigrams`. It is also added to the score of a hypothesis whose last, partial word is not a prefix of a
word in `unigrams`. If this word has more than six characters, the penalty grows in proportion to its length.

Each complete hotword adds `hotword_weight` to the score. A partial hotword gets a provisional boost: the weight times
the fraction of the hotword's characters decoded so far. Boosts keep additional hypotheses in the beam and are not part
of a result's score.

Dims: F frames, N labels.

References:
    Hannun et al., First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014,
    https://arxiv.org/abs/1408.2873.
    https://github.com/kensho-technologies/pyctcdecode; docs/howto/decoding.md lists the differences.
"""

from __future__ import annotations

import copy
import functools
import os
import pathlib
import warnings
import weakref
from collections.abc import Iterable, Iterator
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

DEFAULT_BEAM_WIDTH, DEFAULT_HOTWORD_WEIGHT, DEFAULT_PRUNE_LOGP, DEFAULT_MIN_TOKEN_LOGP = 100, 10.0, -10.0, -5.0
WordFrames = tuple[str, tuple[int, int]]  # the word, and (first frame, last frame + 1)


class OutputBeam(NamedTuple):
    """A result of the search.

    Attributes:
        text: The words, separated by spaces.
        last_lm_state: The state of the language model after the words. None without a model.
        text_frames: Each word with its frame range, (first frame, last frame + 1).
        logit_score: The log of the total probability of all alignments, in nats.
        lm_score: The total score of the hypothesis. The name is pyctcdecode's.
    """

    text: str
    last_lm_state: kenlm.State | None
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float


class BatchBeam(NamedTuple):
    """An `OutputBeam` without the language model state."""

    text: str
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float


class BeamSearchDecoderCTC:
    """A CTC beam search decoder with an optional language model.

    Attributes:
        model_container: The models of all decoders, shared with the processes of a pool. A model is removed when its
            decoder is deleted.
    """

    _ALPHABET_SERIALIZED_FILENAME: ClassVar[str] = decoder_folders.ALPHABET
    _LANGUAGE_MODEL_SERIALIZED_DIRECTORY: ClassVar[str] = decoder_folders.LANGUAGE_MODEL
    model_container: ClassVar[dict[bytes, WordScorer | None]] = {}

    def __init__(self, alphabet: Alphabet, language_model: WordScorer | None = None) -> None:
        """Creates a decoder from the arguments that `build_ctcdecoder` prepares."""
        self._alphabet, self._model_key = alphabet, os.urandom(16)
        self.model_container[self._model_key] = language_model
        weakref.finalize(self, self.model_container.pop, self._model_key, None)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BeamSearchDecoderCTC:
        return type(self)(self._alphabet, copy.copy(self._language_model))  # shares the model, but not its weights

    __copy__ = __deepcopy__

    @property
    def _language_model(self) -> WordScorer | None:
        if self._model_key not in self.model_container:
            reason = 'cleanup() was called, or the pool was created before the decoder'
            raise BadInput('decoder', f'the model is not available in this process, because {reason}')
        return self.model_container[self._model_key]

    def cleanup(self) -> None:
        """Removes the model from `model_container`."""
        self.model_container.pop(self._model_key, None)

    def save_to_dir(self, filepath: str | os.PathLike) -> None:
        """Saves the decoder in pyctcdecode's format.

        Writes `alphabet.json` and, if there is a language model, the folder `language_model/` with the unigrams, the
        weights and a copy of the ARPA file or run. Removes the files of an earlier decoder from `language_model/`.

        Args:
            filepath: The folder, which is created if it does not exist.

        Raises:
            BadInput: The language model is a mixture or has no file, or would be saved in its own folder.
        """
        decoder_folders.write(pathlib.Path(filepath), self._alphabet, self._language_model)

    @classmethod
    def load_from_dir(cls, filepath: str | os.PathLike, unigram_encoding: str = 'utf-8') -> BeamSearchDecoderCTC:
        """Loads a decoder saved by `save_to_dir`, or by pyctcdecode.

        Args:
            filepath: The folder.
            unigram_encoding: The encoding of `unigrams.txt`.

        Raises:
            BadInput: A file is missing or damaged, or the model is a KenLM binary file.
        """
        return cls(*decoder_folders.read(pathlib.Path(filepath), unigram_encoding))

    def reset_params(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        unk_score_offset: float | None = None,
        lm_score_boundary: bool | None = None,
    ) -> None:
        """Sets each parameter that is not None. See `build_ctcdecoder`. Does nothing without a language model.

        Raises:
            BadInput: A number is not finite, or `lm_score_boundary` is True and the model has no end-of-sentence token.
        """
        if lm := self._language_model:
            given = {'alpha': alpha, 'beta': beta, 'unk_score_offset': unk_score_offset}
            boundary = lm.score_boundary if lm_score_boundary is None else lm_score_boundary
            lm.set_weights(boundary, **{name: value for name, value in given.items() if value is not None})

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
        """Returns the best text: the first result of `decode_beams` with `prune_history=True`."""
        limits = Limits(beam_width, beam_prune_logp, token_min_logp, True)
        best = self._search(logits, limits, Hotwords(hotwords, hotword_weight), lm_start_state)[0]
        return ' '.join(best.text.words())

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
        """Decodes an utterance.

        Args:
            logits: Probabilities, log-probabilities or logits of the labels, F x N. Each frame is normalized. If all
                values are in [0, 1], they are interpreted as probabilities. Each frame must then sum to one, apart
                from rounding in float16, bfloat16 or uint8.
            beam_width: The maximum number of hypotheses to keep after each frame.
            beam_prune_logp: The minimum score of a hypothesis relative to the best hypothesis. At most 0.
            token_min_logp: The minimum log-probability of a label. The best label of each frame is always considered.
            prune_history: Whether to keep only the best of the hypotheses that the language model cannot distinguish.
            hotwords: Words or phrases to boost, whether or not the model knows them. A warning lists the words that the
                labels cannot spell. Hotwords keep up to `beam_width` additional hypotheses in the beam.
            hotword_weight: The score added for each complete hotword.
            lm_start_state: The `last_lm_state` of the preceding utterance, from which to continue.

        Returns:
            Distinct texts, best first.

        Raises:
            BadInput: The logits have the wrong shape or type, the probabilities of a frame do not sum to one, or an
                option has an invalid value.
        """
        limits = Limits(beam_width, beam_prune_logp, token_min_logp, prune_history)
        beams, labels = [], self._alphabet.parsed_labels()
        for result in self._search(logits, limits, Hotwords(hotwords, hotword_weight), lm_start_state):
            words = result.text.words()
            frames = list(zip(words, word_frames(result.path, labels)))
            beams.append(OutputBeam(' '.join(words), result.text.state, frames, result.logit_score, result.score))
        return beams

    def decode_batch(self, pool: Any, logits_list: Iterable[np.ndarray], **options: Any) -> list[str]:
        """Returns the best text of each utterance. See `decode_beams_batch`."""
        return self._map(pool, self.decode, logits_list, options)

    def decode_beams_batch(self, pool: Any, logits_list: Iterable[np.ndarray], **options: Any) -> list[list[BatchBeam]]:
        """Returns the results of `decode_beams` for each utterance, without language model states.

        Args:
            pool: A process pool forked after the decoder was built, or None to decode in this process. A decoder with a
                network always runs in this process, because forked processes cannot use JAX.
            logits_list: The logits of each utterance.
            **options: Keyword arguments of `decode_beams`.
        """
        return self._map(pool, self._batch_beams, logits_list, options)

    def _batch_beams(self, logits: np.ndarray, **options: Any) -> list[BatchBeam]:
        return [BatchBeam(beam.text, *beam[2:]) for beam in self.decode_beams(logits, **options)]

    def _map(self, pool: Any, method: Any, logits_list: Iterable[np.ndarray], options: dict[str, Any]) -> list[Any]:
        # The first utterance would exhaust an iterator of hotwords.
        decode = functools.partial(method, **{k: list(x) if isinstance(x, Iterator) else x for k, x in options.items()})
        lm, context = self._language_model, getattr(pool, '_ctx', None) or getattr(pool, '_mp_context', None)
        starts_anew = isinstance(context, (SpawnContext, ForkServerContext))
        if pool is None or starts_anew or (lm is not None and lm.model.uses_jax):
            return [decode(logits) for logits in logits_list]
        weights = None if lm is None else {name: getattr(lm, name) for name in decoder_folders.WEIGHTS}
        return list(pool.map(functools.partial(self._decode_with, weights, decode), logits_list))

    def _decode_with(self, weights: dict[str, Any] | None, decode: Any, logits: np.ndarray) -> Any:
        """Decodes in a pool process, after setting the current weights. The process was forked with older weights."""
        if weights is not None and (lm := self._language_model):
            lm.set_weights(**weights)
        return decode(logits)

    def _search(
        self, logits: np.ndarray, limits: Limits, hotwords: Hotwords, state: kenlm.State | None
    ) -> list[Result]:
        """Validates the arguments of `decode` and `decode_beams`, and runs the search."""
        limits.check()
        lm, allowed = self._language_model, 'must be None or the last_lm_state of a result from a decoder with a model'
        require(state is None or (lm is not None and isinstance(state, kenlm.State)), 'lm_start_state', state, allowed)
        if unspellable := self._alphabet.unspellable(hotwords.words):
            warnings.warn(f'hotwords={unspellable}: ignored, because the labels cannot spell them', stacklevel=3)
        prefixes = SpelledPrefixes(self._alphabet.parsed_labels(), lm or WordCounter(), hotwords, state)
        return search(log_probabilities(logits, len(self._alphabet.labels)), prefixes, limits)


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
    """Returns a CTC beam search decoder.

    Args:
        labels: The characters or subwords of the acoustic model, in the order of its outputs. The space is ' ' or `|`.
            The blank is '', `<pad>`, `[PAD]` or `_`. If none of these is given, the blank is the column after the last
            label.
        kenlm_model: An `nplm_jax.kenlm.Model`, or its first argument. None to decode without a language model.
        unigrams: The words that count as known. The default is the vocabulary of the model.
        alpha: The weight of log P of the words.
        beta: The score added for each word.
        unk_score_offset: The score added to log10 P of unknown words.
        lm_score_boundary: Whether to start in the sentence-initial state and score the end of the sentence.
        kenlm_model_path: An alias for `kenlm_model`, as in pyctcdecode.

    Raises:
        BadInput: A label is repeated, the labels cannot spell any known word, the model cannot be loaded or its tokens
            are subwords, or a weight is not a finite number.
    """
    alphabet = Alphabet.build_alphabet(labels)
    is_one = None in (kenlm_model, kenlm_model_path)
    require(is_one, 'kenlm_model_path', kenlm_model_path, 'is an alias for kenlm_model; pass only one of them')
    given = kenlm_model if kenlm_model_path is None else kenlm_model_path
    if given is None:
        require(unigrams is None, 'unigrams', unigrams, 'requires kenlm_model')
        return BeamSearchDecoderCTC(alphabet)
    model = given if isinstance(given, kenlm.Model) else kenlm.Model(given)
    lm = WordScorer(model, unigrams, alpha, beta, unk_score_offset, lm_score_boundary)
    alphabet.check_spells(lm.words, 'labels')
    return BeamSearchDecoderCTC(alphabet, lm)
