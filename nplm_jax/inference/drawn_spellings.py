"""Samples spellings for out-of-vocabulary words, character by character.

Dims: B sequences or words, T characters or words in each, S rare-word symbols in all sequences.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from nplm_jax.data.stream import RARE_ID
from nplm_jax.distributed import jax_settings
from nplm_jax.inference.generation import BLOCK, Choice, draw_word
from nplm_jax.models.language_model import reorder
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.utils.errors import BadInput

_FIRST_SPELLING = 2**31  # added to the number of a spelling, so that its random keys differ from those of sequences
_MAX_CHARACTERS = 200  # maximum length of a sampled word
_MAX_ATTEMPTS = 100  # number of attempts to sample a word outside the vocabulary


def spell(spelling: Spelling, numbers: Sequence[int], seed: int = 1) -> list[str]:
    """Samples out-of-vocabulary words that consist of characters in the training data of the spelling model.

    Each word depends only on the seed and on the number that identifies the word.

    Args:
        spelling: The distribution over out-of-vocabulary words.
        numbers: A number that identifies each word, at least 0 and less than 2**31.
        seed: The random seed.

    Returns:
        The words, at most 200 characters each.

    Raises:
        BadInput: For at least one word, all 100 samples were too long or already in the vocabulary.
    """
    jax_settings.require_pinned()
    words: dict[int, str] = {}
    for attempt in range(_MAX_ATTEMPTS):
        missing = [number for number in dict.fromkeys(numbers) if number not in words]
        for first in range(0, len(missing), BLOCK):
            block = missing[first : first + BLOCK]
            padded_B = np.resize(np.asarray(block, np.int64), BLOCK)  # one compiled program for any number of words
            for number, word in zip(block, _draw_spellings(spelling, padded_B, attempt, seed)):
                if word and not spelling.vocabulary.ids.get(word):
                    words[number] = word
    if any(number not in words for number in numbers):
        raise BadInput(
            'spelling', f'all {_MAX_ATTEMPTS} attempts produced words that are too long or already in the vocabulary'
        )
    return [words[number] for number in numbers]


def decode_and_spell(spelling: Spelling, ids_BxT: np.ndarray, seed: int = 1) -> list[list[str]]:
    """Decodes sequences and replaces each rare-word symbol with a sampled spelling.

    The spellings in a sequence depend only on the seed, on the index of the sequence, and on T.

    Args:
        spelling: The distribution over out-of-vocabulary words.
        ids_BxT: Word ids, such as the result of `sample`.
        seed: The random seed.

    Returns:
        The words in each of the B sequences, T words each.
    """
    numbers_S = np.flatnonzero(ids_BxT == RARE_ID)
    spelled = dict(zip(numbers_S.tolist(), spell(spelling, numbers_S.tolist(), seed)))
    length = ids_BxT.shape[1]
    return [
        [spelled.get(i * length + t, word) for t, word in enumerate(spelling.vocabulary.decode(ids_T))]
        for i, ids_T in enumerate(ids_BxT)
    ]


def _draw_spellings(spelling: Spelling, numbers_B: np.ndarray, attempt: int, seed: int) -> list[str]:
    """Samples a spelling for each number. A spelling that is too long is returned as an empty string."""
    keys_B = (numbers_B + _FIRST_SPELLING).astype(np.uint32)
    model, ids_TxB, ended_B = spelling.model, [], np.zeros(len(numbers_B), bool)
    state = reorder(model.prefill(spelling.prefix[None]), np.zeros(len(numbers_B), np.int32))
    for position in range(_MAX_CHARACTERS + 1):
        log_p_BxV = jnp.asarray(model.predict(state))
        ids_B = draw_word(seed, keys_B, attempt * (_MAX_CHARACTERS + 1) + position, log_p_BxV, Choice())
        ids_TxB.append(np.asarray(ids_B))
        ended_B |= ids_TxB[-1] == spelling.end_id
        if ended_B.all():
            break
        state = model.advance(state, ids_B)
    strings = []
    for ids_T, ended in zip(np.stack(ids_TxB, axis=1), ended_B):
        length = int(np.argmax(ids_T == spelling.end_id)) if ended else 0
        strings.append(''.join(spelling.characters.decode(ids_T[:length])))
    return strings
