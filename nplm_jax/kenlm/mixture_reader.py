"""A reader for mixtures, with the same interface as the other readers.

Dims: M models, S contexts, V words, T words in all lines, B lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nplm_jax.inference.scoring import LOG_10
from nplm_jax.kenlm.readers import Context, NetworkReader, NgramReader, Words


class MixtureReader:
    """A reader for a mixture, a weighted sum of probabilities. `Context.known` holds one context per component."""

    def __init__(self, readers: Sequence[Reader], weights: Sequence[float], ids_MxV: np.ndarray) -> None:
        """Initializes the mixture.

        Args:
            readers: The readers of the components.
            weights: The weight of each reader.
            ids_MxV: The id that each reader uses for each word of the mixture.
        """
        self._readers, self._ids_MxV = readers, ids_MxV
        with np.errstate(divide='ignore'):
            self._log_weights_M = np.log10(weights)
        self._log_weights = self._log_weights_M.tolist()
        self.uses_jax: bool = any(reader.uses_jax for reader in readers)
        orders = [reader.order for reader in readers if reader.order is not None]
        self.order: int | None = max(orders) if len(orders) == len(readers) else None
        self.null: Context = Context(known=[reader.null for reader in readers])
        self.begin: Context = Context(known=[reader.begin for reader in readers])

    def words(self, context: Context) -> Words:
        """See `NgramReader.words`. Returns one entry per reader, or none if the context is empty for all readers."""
        parts = tuple(reader.words(part) for reader, part in zip(self._readers, context.known))
        return parts if any(parts) else ()

    def after(self, context: Context, word: int) -> Context:
        """See `NgramReader.after`."""
        ids_M = self._ids_MxV[:, word].tolist()
        return Context(known=[r.after(part, i) for r, part, i in zip(self._readers, context.known, ids_M)])

    def score(self, context: Context, word: int) -> tuple[float, int]:
        """See `NgramReader.score`. The length is the maximum over the readers."""
        ids_M = self._ids_MxV[:, word].tolist()
        scores = [r.score(part, i) for r, part, i in zip(self._readers, context.known, ids_M)]
        log_p_M, lengths_M = zip(*scores)
        return self._mix(log_p_M), max(lengths_M)

    def step(self, context: Context, word: int) -> tuple[float, int, Context]:
        """See `NgramReader.step`."""
        ids_M = self._ids_MxV[:, word].tolist()
        steps = [r.step(part, i) for r, part, i in zip(self._readers, context.known, ids_M)]
        log_p_M, lengths_M, contexts = zip(*steps)
        return self._mix(log_p_M), max(lengths_M), Context(known=contexts)

    def _mix(self, log10_p_M: Sequence[float]) -> float:
        """Returns log10 of the weighted sum of the probabilities of one word."""
        terms = [weight + log10_p for weight, log10_p in zip(self._log_weights, log10_p_M)]
        most = max(terms)
        return most if most == -math.inf else most + math.log10(sum(10 ** (term - most) for term in terms))

    def score_lines(self, ids_T: np.ndarray, stops_B: np.ndarray, begins: bool) -> tuple[np.ndarray, np.ndarray]:
        """See `NgramReader.score_lines`. The lengths are the maximum over the readers."""
        parts = [r.score_lines(ids_V[ids_T], stops_B, begins) for r, ids_V in zip(self._readers, self._ids_MxV)]
        log_p_MxT, lengths_MxT = map(np.stack, zip(*parts))
        return _log10_sum(log_p_MxT + self._log_weights_M[:, None]), lengths_MxT.max(0)

    def look_up(self, contexts: Sequence[Context]) -> None:
        """See `NgramReader.look_up`."""
        for m, reader in enumerate(self._readers):
            reader.look_up([context.known[m] for context in contexts])

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """See `NgramReader.next_words`."""
        rows = [
            reader.next_words([context.known[m] for context in contexts])[:, self._ids_MxV[m]] + self._log_weights_M[m]
            for m, reader in enumerate(self._readers)
        ]
        return _log10_sum(np.stack(rows)).astype(np.float32)


def _log10_sum(log10: np.ndarray) -> np.ndarray:
    """Returns log10(sum(10**log10)) over the first axis."""
    return np.logaddexp.reduce(log10 * LOG_10, axis=0) / LOG_10


Reader = NgramReader | NetworkReader | MixtureReader
