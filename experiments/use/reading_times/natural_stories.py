"""The Natural Stories corpus: its words, reading times, and the surprisals of GPT-3 that it includes.

    git clone https://github.com/languageMIT/naturalstories
    git -C naturalstories checkout 4700daad696e942f5aba23c957a7423d0de66612

The licence of the corpus is CC BY-NC-SA 4.0. This repository contains no part of the corpus.

Dims: W words in all stories, T tokens in a story.

References:
    Futrell, Gibson, Tily, Blank, Vishnevetsky, Piantadosi and Fedorenko, The Natural Stories corpus, 2021.
"""

import csv
import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_bytes

COMMIT = '4700daad696e942f5aba23c957a7423d0de66612'
REPOSITORY = 'https://github.com/languageMIT/naturalstories'
FILES = {  # path in the repository -> SHA-256
    'naturalstories_RTS/processed_wordinfo.tsv': '047d2a0b84eff99d90535d1517f7fa7d466b81fbd60e990f2f08caac04d8aa56',
    'probs/all_stories_gpt3.csv': '6ccee02c20a688d5f7e69a023025d725e8fb06d87e2c7f997b399384c200a0ad',
}
GPT3, CONTROL = 'GPT-3', 'GPT-3, shuffled'
MAX_DIFFERENT = 0.005  # maximum share of words that are spelled differently in the text that GPT-3 read


@dataclasses.dataclass(frozen=True)
class Stories:
    """The words of the stories, in order.

    Attributes:
        words: The words as shown to readers, with punctuation.
        story_W: The number of the story, from 1.
        zone_W: The position in the story, from 1.
        log_rt_W: The mean over readers of the log reading time in ms.
        mean_rt_W: The mean reading time in ms.
        gpt3_W: GPT-3's surprisal in nats, or nan for the first word in a story.
    """

    words: list[str]
    story_W: np.ndarray
    zone_W: np.ndarray
    log_rt_W: np.ndarray
    mean_rt_W: np.ndarray
    gpt3_W: np.ndarray


def read(folder: str) -> Stories:
    """Reads the corpus from a clone of its repository, or from a folder with the two files.

    Raises:
        BadInput: A file is missing or is of another version.
    """
    times, gpt3 = (_read_file(folder, path, sha256).decode() for path, sha256 in FILES.items())
    header, *lines = (line.split('\t') for line in times.splitlines())  # quotation marks belong to the words
    cells = [dict(zip(header, line)) for line in lines]
    cells.sort(key=lambda cell: (int(cell['item']), int(cell['zone'])))
    words = [cell['word'] for cell in cells]
    story_W = np.array([int(cell['item']) for cell in cells])
    tokens = list(csv.DictReader(gpt3.splitlines()))
    gpt3_W = np.full(len(words), np.nan)
    for story in np.unique(story_W).tolist():
        rows = [row for row in tokens if int(row['story']) == story - 1]  # counted from 0 in the file
        is_story_W = story_W == story
        gpt3_W[is_story_W] = sum_tokens(
            [word for word, is_story in zip(words, is_story_W) if is_story],
            [row['token'] for row in rows],
            [float(row['logprob'] or 'nan') for row in rows],
            [int(row['offset']) for row in rows],
        )
    return Stories(
        words,
        story_W,
        np.array([int(cell['zone']) for cell in cells]),
        np.log([float(cell['gmeanItemRT']) for cell in cells]),
        np.array([float(cell['meanItemRT']) for cell in cells]),
        gpt3_W,
    )


def sum_tokens(
    words: Sequence[str], tokens: Sequence[str], log_p: Sequence[float], offsets: Sequence[int]
) -> np.ndarray:
    """Returns the surprisal of each word, which is the sum over the word's tokens, in nats.

    Args:
        words: The words of a text, separated by single spaces.
        tokens: The tokens of the text, which may begin with spaces.
        log_p: The log-probability of each token, nats.
        offsets: The position of the first character of each token in the text.

    Raises:
        BadInput: A token crosses a word boundary, a word has no token, or too many words differ from their tokens.
    """
    text = ' '.join(words)
    stops_W = np.cumsum([len(word) + 1 for word in words]) - 1
    starts_W = stops_W - [len(word) for word in words]
    surprisal_W, num_tokens_W, different = np.zeros(len(words)), np.zeros(len(words), int), set()
    for token, log_p_of_token, offset in zip(tokens, log_p, offsets, strict=True):
        core = token.strip()
        start = offset + len(token) - len(token.lstrip())
        word = int(np.searchsorted(starts_W, start, side='right')) - 1
        if start + len(core) > stops_W[word]:
            raise BadInput(f'token {token!r} at character {offset:,}', 'must lie within one word')
        if text[start : start + len(core)] != core:
            different.add(word)
        surprisal_W[word] -= log_p_of_token
        num_tokens_W[word] += 1
    if not num_tokens_W.all():
        raise BadInput(f'word {int(np.argmin(num_tokens_W)) + 1:,}', 'must contain at least one token')
    if len(different) > MAX_DIFFERENT * len(words):
        raise BadInput(
            'words', f'{len(different):,} of {len(words):,} words differ from the tokens at the same offsets'
        )
    return surprisal_W


def _read_file(folder: str, path: str, sha256: str) -> bytes:
    """Returns a verified file of the corpus, which may be at its path in the repository or directly in the folder."""
    root = expand('--data', folder)
    file = next((p for p in (root / path, root / pathlib.Path(path).name) if p.is_file()), None)
    if file is None:
        raise BadInput(
            '--data', f'does not contain {path}; must be a clone of {REPOSITORY} at commit {COMMIT}', value=folder
        )
    data = read_bytes(str(file), file)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(file, f'is another version (its SHA-256 differs); check out commit {COMMIT} of {REPOSITORY}')
    return data
