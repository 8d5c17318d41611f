"""Finds likely continuations of a prompt with beam search.

Dims: N words in the prompt, T words to generate, V vocabulary, K beam width.
"""

import numpy as np

from nplm_jax.data.stream import RARE_ID
from nplm_jax.inference.generation import largest
from nplm_jax.models.language_model import LanguageModel, reorder
from nplm_jax.utils.errors import BadInput, require


def beam(
    model: LanguageModel, prompt_N: np.ndarray, words: int, width: int, rare: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Searches for the most likely continuations, keeping the `width` best hypotheses after each word.

    Args:
        model: Any language model.
        prompt_N: Word ids in reading order; may be empty.
        words: The number of words to generate in each sequence.
        width: The number of hypotheses to keep after each word.
        rare: Whether the rare-word symbol may be generated.

    Returns:
        A tuple (ids, log_p). `ids` contains the generated word ids of each sequence, int32, K x T, with the most likely
        sequence first. `log_p` contains log P of each sequence given the prompt, float64, K, nats. K is `width`, or
        smaller if fewer sequences are possible.

    Raises:
        BadInput: `rare` is False, and all words other than the rare-word symbol have probability zero.
    """
    require(words >= 1, 'words', words, 'must be 1 or more')
    require(width >= 1, 'beam', width, 'must be 1 or more')
    state = model.prefill(np.asarray(prompt_N)[None])
    ids_KxT, log_p_K = np.zeros((1, 0), np.int32), np.zeros(1)
    for position in range(words):
        log_p_KxV = np.array(model.predict(state), np.float64)
        if not rare:
            log_p_KxV[:, RARE_ID] = -np.inf
        log_p = (log_p_K[:, None] + log_p_KxV).ravel()
        best_K = largest(log_p, width)
        best_K = best_K[np.isfinite(log_p[best_K])]
        if not len(best_K):
            raise BadInput(
                'beam', 'only the rare-word symbol can be generated next; use rare=True to allow it', value=width
            )
        rows_K, ids_K = np.divmod(best_K, log_p_KxV.shape[1])
        ids_KxT = np.concatenate([ids_KxT[rows_K], ids_K[:, None].astype(np.int32)], axis=1)
        log_p_K = log_p[best_K]
        if position + 1 < words:
            state = model.advance(reorder(state, rows_K), ids_KxT[:, -1])
    return ids_KxT, log_p_K
