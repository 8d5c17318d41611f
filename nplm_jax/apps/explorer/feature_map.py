"""Maps a network's word features onto the plane and draws the map as an ECharts scatter plot.

Dims: V vocabulary, M features per word, F frequent words, R other words, A frequent words near a word.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data.stream import SPECIAL_TOKENS
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import embeddings

NUM_POINTS = 400  # number of frequent words on the map, besides the selected word and its neighbours
TINY = 30  # maximum size of a vocabulary whose words all have labels
NUM_ANCHORS = 3  # number of frequent words from which the position of a rare word is interpolated
SHARPNESS = 10.0  # factor by which similarities are multiplied in the softmax weights of these words
T_SNE_AXES = 't-SNE: nearby words are similar; directions have no meaning', ''
COLOURS = {'frequent word': '#64748b', 'neighbour': '#2f7de1', 'selected word': '#ea580c'}
POINT_SIZES = 4, 14  # sizes of the rarest and the most frequent word on the map (pixels)
MARKED_SIZE = 10  # minimum size of the selected word and its neighbours (pixels)


class FeatureMap(NamedTuple):
    """The positions of words in the plane.

    Attributes:
        points_Vx2: The coordinates of each word.
        axes: The labels of the two axes.
    """

    points_Vx2: np.ndarray
    axes: tuple[str, str]


def project(features_VxM: np.ndarray, num_points: int = NUM_POINTS) -> FeatureMap:
    """Places the most frequent words with t-SNE, which puts words with similar features (by cosine) close together.

    Each of the remaining words is placed between the frequent words that are most similar to it. If there are only one
    or two features, or fewer than four words, the first two features are the coordinates.

    Raises:
        BadInput: scikit-learn is not installed.
    """
    features_VxM = np.asarray(features_VxM, np.float64)
    V, M = features_VxM.shape
    if M <= 2 or V < 4:
        plane_Vx2 = np.pad(features_VxM[:, :2], ((0, 0), (0, max(2 - M, 0))))
        return FeatureMap(plane_Vx2, ('feature 1', 'feature 2' if M > 1 else ''))
    unit_VxM = embeddings.unit_vectors(features_VxM)
    points_Fx2 = embeddings.project(unit_VxM[:num_points], 'tsne')
    similarity_RxF = unit_VxM[num_points:] @ unit_VxM[:num_points].T
    nearest_RxA = np.argpartition(-similarity_RxF, NUM_ANCHORS - 1, axis=1)[:, :NUM_ANCHORS]
    weights_RxA = np.exp(SHARPNESS * np.take_along_axis(similarity_RxF, nearest_RxA, axis=1))
    weights_RxA /= weights_RxA.sum(axis=1, keepdims=True)
    points_Rx2 = np.einsum('ra,rad->rd', weights_RxA, points_Fx2[nearest_RxA])
    return FeatureMap(np.concatenate([points_Fx2, points_Rx2]), T_SNE_AXES)


def chart(vocabulary: Vocabulary, feature_map: FeatureMap, selected: str, near: Sequence[str]) -> dict[str, Any]:
    """Returns the options of the scatter plot.

    Args:
        vocabulary: The words, the most frequent first.
        feature_map: The positions of the words.
        selected: The selected word, which may be outside the vocabulary.
        near: The neighbours of the selected word.
    """
    known = [selected] if vocabulary.find(selected) is not None else []
    others = [word for word in near if word != selected]
    marked = {*known, *others}
    frequent = [word for word in vocabulary.shown[:NUM_POINTS] if word not in marked and word not in SPECIAL_TOKENS]
    is_tiny = len(vocabulary) <= TINY
    places = {
        name: [_point(vocabulary, feature_map, word, word in marked) for word in words]
        for name, words in zip(COLOURS, (frequent, others, known))
    }
    hidden = {'show': False}
    axis = {'min': 'dataMin', 'max': 'dataMax', 'nameLocation': 'middle', 'nameGap': 8}
    axis |= dict.fromkeys(('axisLabel', 'axisTick', 'splitLine', 'axisLine'), hidden)
    # Zooming requires two fingers or Ctrl, so the wheel still scrolls the page while the pointer is over the map.
    zoom = {'type': 'inside', 'zoomOnMouseWheel': 'ctrl', 'preventDefaultMouseMove': False}
    return {
        'animationDuration': 300,
        'grid': {'left': 24, 'right': 56, 'top': 32, 'bottom': 24},
        'legend': {'top': 0, 'itemWidth': 10, 'itemHeight': 10, 'selectedMode': False},
        'xAxis': axis | {'name': feature_map.axes[0]},
        'yAxis': axis | {'name': feature_map.axes[1]},
        'dataZoom': [zoom | {'xAxisIndex': 0}, zoom | {'yAxisIndex': 0}],
        'series': [_series(name, points, bool(marked), is_tiny) for name, points in places.items()],
    }


def _point(vocabulary: Vocabulary, feature_map: FeatureMap, word: str, marked: bool) -> Mapping[str, Any]:
    """Returns the point of a word. Its size decreases linearly with the logarithm of the word's frequency rank."""
    i = vocabulary.find(word)
    assert i is not None, word
    smallest, largest = POINT_SIZES
    share = 1 - math.log1p(min(i, NUM_POINTS)) / math.log1p(NUM_POINTS)
    size = max(smallest + share * (largest - smallest), MARKED_SIZE if marked else 0)
    place = [round(x, 4) for x in feature_map.points_Vx2[i].tolist()]
    return {'name': word, 'value': place, 'symbolSize': round(size, 1)}


def _series(name: str, points: Sequence[Mapping[str, Any]], any_marked: bool, is_tiny: bool) -> dict[str, Any]:
    """Returns the points of one colour.

    If a word is selected, frequent words are faded. Unless the vocabulary is tiny, they have labels only on hover.
    """
    faded = any_marked and name == 'frequent word'
    return {
        'name': name,
        'type': 'scatter',
        'data': tuple(points),  # a tuple, because NiceGUI would watch each item of a list
        'cursor': 'pointer',
        'itemStyle': {'color': COLOURS[name], 'opacity': 0.45 if faded else 0.85},
        'label': {
            'show': is_tiny or not faded,
            'fontWeight': 'bold' if name == 'selected word' else 'normal',
            'formatter': '{b}',
            'position': 'right',
            'distance': 3,
            'fontSize': 12,
            'minMargin': 6,  # the page's font is wider than the font that ECharts measures
        },
        # All words of a tiny vocabulary have labels, which move down where they would overlap.
        'labelLayout': {'moveOverlap': 'shiftY'} if is_tiny else {'hideOverlap': name != 'selected word'},
        'emphasis': {'label': {'show': True, 'fontSize': 15, 'fontWeight': 'bold'}},
        'z': 2 + list(COLOURS).index(name),
    }
