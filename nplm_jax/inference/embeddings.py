"""Finds nearest neighbours of words, projects word features C to two dimensions, and writes word2vec files.

Dims: V words, M features per word, B query words, K neighbours.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import check_ids
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.names import require_one_of

MAPS = ('pca', 'tsne')


def neighbours(features_VxM: np.ndarray, ids_B: Sequence[int] | np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k words whose features have the highest cosine similarity to those of each query word.

    Args:
        features_VxM: The features of all words.
        ids_B: The ids of the query words. A query word is never its own neighbour.
        k: The number of neighbours, at least 1.

    Returns:
        A tuple (ids, cosines) of the ids of the neighbours, most similar first, and their cosine similarities, float64.
        Both are B x K arrays with K = min(k, V - 1).

    Raises:
        BadInput: `ids_B` is not a sequence, an id is not between 0 and V - 1, or `k` is less than 1.
    """
    require(k >= 1, 'k', k, 'must be 1 or more')
    require(np.ndim(ids_B) == 1, 'ids', ids_B, 'must be a sequence of word ids')
    check_ids('ids', ids_B, len(features_VxM))
    rows_B = np.asarray(ids_B, np.int64)
    unit_VxM = unit_vectors(features_VxM)
    cosines_BxV = unit_VxM[rows_B] @ unit_VxM.T
    cosines_BxV[np.arange(len(rows_B)), rows_B] = -np.inf
    ids_BxK = np.argsort(-cosines_BxV, axis=1, kind='stable')[:, : min(k, len(features_VxM) - 1)]
    return ids_BxK, np.take_along_axis(cosines_BxV, ids_BxK, axis=1)


def unit_vectors(vectors_VxM: np.ndarray) -> np.ndarray:
    """Normalizes the vectors to length one, in float64. Zero vectors remain zero."""
    vectors_VxM = np.asarray(vectors_VxM, np.float64)
    norms_V = np.linalg.norm(vectors_VxM, axis=1)
    return vectors_VxM / np.where(norms_V > 0, norms_V, 1)[:, None]


def project(features_VxM: np.ndarray, method: str, seed: int = 1) -> np.ndarray:
    """Projects word features to two dimensions.

    Args:
        features_VxM: The features of at least four words. If M is 1 or 2, the features themselves are returned, padded
            with zeros to two columns.
        method: `pca` for the first two principal components, or `tsne` for t-SNE with cosine distance. t-SNE keeps
            similar words close together, but large distances in its output are not meaningful.
        seed: The random seed of t-SNE.

    Returns:
        The coordinates of each word, V x 2.

    Raises:
        BadInput: There are fewer than four words, or scikit-learn is not installed.
    """
    require_one_of('method', method, MAPS)
    features_VxM = np.asarray(features_VxM)
    V, M = features_VxM.shape
    require(V >= 4, 'words', V, 'must be 4 or more')
    if M <= 2:
        return np.pad(features_VxM, ((0, 0), (0, 2 - M)))
    try:
        from sklearn import decomposition, manifold  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput('scikit-learn', 'is not installed; install it with: pip install scikit-learn') from None
    if method == 'pca':
        return decomposition.PCA(2, svd_solver='full').fit_transform(features_VxM)
    perplexity = min(30, (V - 1) / 3)
    tsne = manifold.TSNE(2, perplexity=perplexity, metric='cosine', init='random', random_state=seed)
    return tsne.fit_transform(features_VxM)


def write_word2vec(
    vocabulary: Vocabulary, features_VxM: np.ndarray, path: str | os.PathLike[str], binary: bool
) -> None:
    """Writes word features in word2vec's text or binary format. Both formats preserve float32 values exactly.

    The first line contains V and M. Each subsequent line contains a word, a space and the features, with nine digits
    per feature in the text format and four bytes per feature in the binary format.

    Args:
        vocabulary: The words, in the order of the rows of `features_VxM`.
        features_VxM: The features of each word, converted to float32.
        path: The file to write.
        binary: Whether to write the binary format instead of the text format.

    Raises:
        BadInput: A word contains whitespace, which neither format allows, or the file cannot be written.
    """
    features_VxM = checked_features(vocabulary, features_VxM)
    lines = [f'{features_VxM.shape[0]} {features_VxM.shape[1]}'.encode()]
    for word, features_M in zip(vocabulary.words, features_VxM):
        values = features_M.astype('<f4').tobytes() if binary else ' '.join(f'{x:.9g}' for x in features_M).encode()
        lines.append(word.encode() + b' ' + values)
    write_file(expand('path', path), b'\n'.join(lines) + b'\n')


def checked_features(vocabulary: Vocabulary, features_VxM: np.ndarray) -> np.ndarray:
    """Returns the features as float32. Raises BadInput unless each word has a row and contains no whitespace."""
    features_VxM = np.asarray(features_VxM, np.float32)
    allowed = f'must have {len(vocabulary)} rows, one for each word'
    require(len(features_VxM) == len(vocabulary), 'features', features_VxM.shape, allowed)
    for word in vocabulary.words:
        require(
            len(word.split()) == 1, 'word', word, 'must not contain whitespace, which word vector files do not support'
        )
    return features_VxM


def write_file(path: pathlib.Path, data: bytes) -> None:
    """Writes a file and creates its parent folders. Raises BadInput on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise BadInput(path, f'cannot be written ({error.strerror})') from None


def nearest_words(
    vocabulary: Vocabulary, networks: Iterable[tuple[str, np.ndarray]], word: str, k: int
) -> list[tuple[str, list[tuple[str, float]]]]:
    """Finds the nearest neighbours of a word in the feature space of each network.

    Args:
        vocabulary: The vocabulary of the networks.
        networks: The name and the features (V x M) of each network.
        word: The word, spelled as in `Vocabulary.shown`. The leading ␣ of a subword may be omitted.
        k: The number of neighbours, at least 1.

    Returns:
        For each network, its name and a list of the k nearest words with their cosine similarities, most similar first.
        If the word is not in the vocabulary, the outer list is empty.
    """
    word_id = vocabulary.find(word)
    if word_id is None:
        return []
    found = [(name, neighbours(features_VxM, [word_id], k)) for name, features_VxM in networks]
    return [
        (name, [(vocabulary.shown[i], cosine) for i, cosine in zip(ids_K.tolist(), cosines_K.tolist())])
        for name, ([ids_K], [cosines_K]) in found
    ]
