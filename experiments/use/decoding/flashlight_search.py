"""The lexicon decoder of flashlight-text with any model, to compare with: pip install flashlight-text (Python 3.11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nplm_jax import decoding, kenlm

BEAM = 200, 20, 50.0  # hypotheses, tokens that continue one, and how far below the best one others are kept


class FlashlightDecoder:
    """The search that `nplm decode` used until it had its own."""

    def __init__(
        self,
        model: kenlm.Model | None,
        tokens: Sequence[str],
        lexicon: decoding.Lexicon,
        weights: decoding.Weights,
        *,
        blank: str,
        silence: str,
    ) -> None:
        """Builds the trie. See `nplm_jax.decoding.Decoder` for the arguments."""
        from flashlight.lib.text import decoder as flashlight  # noqa: PLC0415

        places = {token: i for i, token in enumerate(tokens)}
        self.words = list(lexicon)
        self._model = _make_model(flashlight, model, self.words) if model else flashlight.ZeroLM()
        trie = flashlight.Trie(len(tokens), places[silence])
        start = self._model.start(False)
        for i, spellings in enumerate(lexicon.values()):
            _, log_p = self._model.score(start, i)
            for spelling in spellings:
                trie.insert([places[token] for token in spelling], i, log_p)
        trie.smear(flashlight.SmearingMode.MAX)
        scores = weights.lm_weight, weights.word_score, -math.inf, 0.0  # the last two: of unknown words, of silence
        options = flashlight.LexiconDecoderOptions(*BEAM, *scores, False, flashlight.CriterionType.CTC)
        special = places[silence], places[blank], -1
        self._search = flashlight.LexiconDecoder(options, trie, self._model, *special, [], False)

    def decode(self, emissions_FxN: np.ndarray) -> list[decoding.Hypothesis]:
        """Returns different hypotheses, best first; their emissions are those of the best alignment."""
        found: dict[tuple[str, ...], decoding.Hypothesis] = {}
        for result in self._search.decode(emissions_FxN.ctypes.data, *emissions_FxN.shape):
            words = tuple(self.words[i] for i in result.words if i >= 0)
            found.setdefault(words, decoding.Hypothesis(words, result.score, result.emittingModelScore, result.lmScore))
        return list(found.values())


def _make_model(flashlight: Any, model: kenlm.Model, words: Sequence[str]) -> Any:
    """Returns a model as flashlight's `LM`: log P of words by their places in the lexicon."""

    def log_p_of(state: kenlm.State, word: str, after: kenlm.State) -> float:
        return max(model.BaseScore(state, word, after) * math.log(10), -1e30)

    class Model(flashlight.LM):
        def start(self, start_with_nothing: bool) -> Any:
            """Returns the state at the beginning of a search, and drops those of the last one."""
            state, begin = flashlight.LMState(), kenlm.State()
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
            return state, log_p_of(self._read[state][0], '</s>', kenlm.State())

    return Model()
