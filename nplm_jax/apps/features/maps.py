"""Draws maps of word features, and writes files for TensorBoard's embedding projector.

Dims: V words, M features per word.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.figure
import numpy as np

from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.embeddings import checked_features, write_file
from nplm_jax.reporting.text import save_figure
from nplm_jax.utils.io import expand

_PROJECTOR = 'embeddings {\n  tensor_path: "vectors.tsv"\n  metadata_path: "metadata.tsv"\n}\n'


def draw(
    points_Vx2: np.ndarray, words: Sequence[str], kinds: Sequence[str], path: pathlib.Path, title: str, num_labels: int
) -> None:
    """Draws a map with one point per word.

    Args:
        points_Vx2: The coordinates of the words.
        words: The words.
        kinds: The category of each word, shown by colour and marker.
        path: The PNG file to write.
        title: The title of the figure.
        num_labels: The number of words, from the first one on, whose points have labels.
    """
    figure = matplotlib.figure.Figure(figsize=(12, 10), layout='constrained')
    axes = figure.subplots()
    colours = matplotlib.colormaps['tab10']
    for i, kind in enumerate(sorted(set(kinds))):
        x, y = points_Vx2[[k == kind for k in kinds]].T
        axes.scatter(x, y, s=9, color=colours(i % colours.N), marker='ox^'[i // colours.N % 3], label=kind)
    for word, point in zip(words[:num_labels], points_Vx2):
        # Without parse_math=False, a word with two $ would be typeset as a formula.
        axes.annotate(word, point, fontsize=7, textcoords='offset points', xytext=(2, 2), parse_math=False)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, parse_math=False)
    axes.legend(markerscale=2)
    save_figure(figure, path, dpi=100)


def write_projector(
    vocabulary: Vocabulary, features_VxM: np.ndarray, folder: str | os.PathLike[str], kinds: Mapping[str, str]
) -> None:
    """Writes the files of TensorBoard's embedding projector: vectors.tsv, metadata.tsv and projector_config.pbtxt.

    projector.tensorflow.org requires the first two files. `tensorboard --logdir` requires all three.

    Args:
        vocabulary: The words and their counts.
        features_VxM: The word features.
        folder: The folder to write to.
        kinds: The part of speech of each word. Words that are not in the mapping get `-`.

    Raises:
        BadInput: A word contains whitespace, or a file cannot be written.
    """
    features_VxM = checked_features(vocabulary, features_VxM)
    rows = zip(vocabulary.words, vocabulary.counts)
    metadata = ''.join(f'{word}\t{count}\t{kinds.get(word, "-")}\n' for word, count in rows)
    vectors = ''.join('\t'.join(f'{x:.9g}' for x in features_M) + '\n' for features_M in features_VxM)
    folder = expand('folder', folder)
    for name, text in {
        'vectors.tsv': vectors,
        'metadata.tsv': 'word\tcount\tpart of speech\n' + metadata,
        'projector_config.pbtxt': _PROJECTOR,
    }.items():
        write_file(folder / name, text.encode())
