"""Learned word features C: nearest neighbours, projections to the plane, and word2vec files.

Dims: V words, M features a word, B query words, K neighbours.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.names import require_one_of

MAPS = ('pca', 'tsne')


def neighbours(features_VxM: np.ndarray, ids_B: Sequence[int], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k other words that are most similar to each query word, by the cosine of their features.

    Args:
        features_VxM: The features of all words.
        ids_B: The query words.
        k: Number of neighbours, at least 1.

    Returns:
        Ids, most similar first, and their cosines, both B x K; K is k, or V - 1 where that is less.
    """
    require(k >= 1, 'k', k, 'must be 1 neighbour or more')
    features_VxM = np.asarray(features_VxM, np.float64)
    norms_V = np.linalg.norm(features_VxM, axis=1)
    unit_VxM = features_VxM / np.where(norms_V > 0, norms_V, 1)[:, None]
    cosines_BxV = unit_VxM[np.asarray(ids_B)] @ unit_VxM.T
    cosines_BxV[np.arange(len(ids_B)), ids_B] = -np.inf
    ids_BxK = np.argsort(-cosines_BxV, axis=1, kind='stable')[:, : min(k, len(features_VxM) - 1)]
    return ids_BxK, np.take_along_axis(cosines_BxV, ids_BxK, axis=1)


def project(features_VxM: np.ndarray, method: str, seed: int = 1) -> np.ndarray:
    """Maps each word to a point in the plane.

    Args:
        features_VxM: The features of at least four words. One or two features a word are returned as they are.
        method: `pca` for the first two principal components, `tsne` for t-SNE of the cosines. t-SNE keeps neighbours
            close; large distances on its map mean nothing.
        seed: Seed of t-SNE.

    Returns:
        V x 2.

    Raises:
        BadInput: There are fewer than four words, or scikit-learn is not installed.
    """
    require_one_of('method', method, MAPS)
    features_VxM = np.asarray(features_VxM)
    V, M = features_VxM.shape
    require(V >= 4, 'words', V, 'a map needs four words or more')
    if M <= 2:
        return np.pad(features_VxM, ((0, 0), (0, 2 - M)))
    try:
        from sklearn import decomposition, manifold  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput('a map of the features needs scikit-learn', 'pip install scikit-learn') from None
    if method == 'pca':
        return decomposition.PCA(2, svd_solver='full').fit_transform(features_VxM)
    perplexity = min(30, (V - 1) / 3)
    tsne = manifold.TSNE(2, perplexity=perplexity, metric='cosine', init='random', random_state=seed)
    return tsne.fit_transform(features_VxM)


def write_word2vec(
    vocabulary: Vocabulary, features_VxM: np.ndarray, path: str | os.PathLike[str], binary: bool
) -> None:
    """Writes word2vec's text or binary format; both keep every bit of a float32.

    The first line has V and M; each further line has a word, a space and the word's features, with nine digits each
    in the text format and four bytes each in the binary format.

    Raises:
        BadInput: A word contains white space, which the format cannot hold, or the file cannot be written.
    """
    features_VxM = checked_features(vocabulary, features_VxM)
    lines = [f'{features_VxM.shape[0]} {features_VxM.shape[1]}'.encode()]
    for word, features_M in zip(vocabulary.words, features_VxM):
        values = features_M.astype('<f4').tobytes() if binary else ' '.join(f'{x:.9g}' for x in features_M).encode()
        lines.append(word.encode() + b' ' + values)
    write_file(expand('path', path), b'\n'.join(lines) + b'\n')


def checked_features(vocabulary: Vocabulary, features_VxM: np.ndarray) -> np.ndarray:
    """Returns the features as float32, after checking that they fit the words and that files can hold the words."""
    features_VxM = np.asarray(features_VxM, np.float32)
    require(len(features_VxM) == len(vocabulary), 'features', features_VxM.shape, f'{len(vocabulary)} words have them')
    for word in vocabulary.words:
        require(len(word.split()) == 1, 'word', word, 'has a blank, which files of word vectors cannot hold')
    return features_VxM


def write_file(path: pathlib.Path, data: bytes) -> None:
    """Writes a file and the folders above it. Raises BadInput where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise BadInput(path, f'cannot be written ({error.strerror})') from None


def nearest_words(
    vocabulary: Vocabulary, networks: Iterable[tuple[str, np.ndarray]], word: str, k: int
) -> list[tuple[str, list[tuple[str, float]]]]:
    """Finds the words nearest to a word by the features of each network.

    Args:
        vocabulary: The words.
        networks: The name of each network and its features, V x M.
        word: The word, as `Vocabulary.shown` has it; of a piece the leading ␣ may be left out.
        k: Number of neighbours, at least 1.

    Returns:
        For each network its name and the k nearest words with their cosines; empty if the word is unknown.
    """
    word_id = vocabulary.find(word)
    if word_id is None:
        return []
    found = [(name, neighbours(features_VxM, [word_id], k)) for name, features_VxM in networks]
    return [
        (name, [(vocabulary.shown[i], cosine) for i, cosine in zip(ids_K.tolist(), cosines_K.tolist())])
        for name, ([ids_K], [cosines_K]) in found
    ]
