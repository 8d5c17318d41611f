"""The map of a network's word features: words as points in the plane, as the options of an ECharts scatter plot.

Dims: V vocabulary, M features a word, F frequent words, R other words, A frequent words near a word.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary

NUM_POINTS = 400  # the most frequent words are on the map, and every word that is selected or near it
NUM_ANCHORS = 3  # frequent words between which another word lies
SHARPNESS = 10.0  # how much closer it lies to the most similar of them
PERPLEXITY = 15.0  # of t-SNE: about how many neighbours a word has
LEARNING_RATE = 50.0
T_SNE_AXES = 't-SNE: close words are similar, directions mean nothing', ''
COLOURS = {'frequent word': '#64748b', 'neighbour': '#2f7de1', 'selected word': '#ea580c'}
POINT_SIZES = 4, 14  # pixels, of the rarest and of the most frequent word on the map
MARKED_SIZE = 10  # pixels at least, of the selected word and its neighbours


class FeatureMap(NamedTuple):
    """The places of words in the plane.

    Attributes:
        points_Vx2: The place of each word.
        axes: What is written at both axes.
    """

    points_Vx2: np.ndarray
    axes: tuple[str, str]


def project(features_VxM: np.ndarray, num_points: int = NUM_POINTS) -> FeatureMap:
    """Places the most frequent words by t-SNE: those with similar features, by the cosine, lie together.

    Any other word lies amid the frequent words that are most similar to it. One or two features a word are their own
    map.
    """
    features_VxM = np.asarray(features_VxM, np.float64)
    M = features_VxM.shape[1]
    if M <= 2:
        return FeatureMap(np.pad(features_VxM, ((0, 0), (0, 2 - M))), ('feature 1', 'feature 2' if M == 2 else ''))
    unit_VxM = features_VxM / np.maximum(np.linalg.norm(features_VxM, axis=1, keepdims=True), np.finfo(float).tiny)
    points_Fx2 = t_sne(unit_VxM[:num_points])
    similarity_RxF = unit_VxM[num_points:] @ unit_VxM[:num_points].T
    num_anchors = min(NUM_ANCHORS, len(points_Fx2))
    nearest_RxA = np.argpartition(-similarity_RxF, num_anchors - 1, axis=1)[:, :num_anchors]
    weights_RxA = np.exp(SHARPNESS * np.take_along_axis(similarity_RxF, nearest_RxA, axis=1))
    weights_RxA /= weights_RxA.sum(axis=1, keepdims=True)
    points_Rx2 = np.einsum('ra,rad->rd', weights_RxA, points_Fx2[nearest_RxA])
    return FeatureMap(np.concatenate([points_Fx2, points_Rx2]), T_SNE_AXES)


def t_sne(features_FxM: np.ndarray, iterations: int = 500) -> np.ndarray:
    """Returns a place in the plane for each point: the first two principal components, moved by exact t-SNE. F x 2.

    References:
        Van der Maaten and Hinton, Visualizing data using t-SNE, JMLR 9, 2008.
    """
    F = len(features_FxM)
    centred_FxM = features_FxM - features_FxM.mean(0)
    places_Fx2 = centred_FxM @ np.linalg.svd(centred_FxM, full_matrices=False)[2][:2].T
    if F <= 3:
        return places_Fx2
    places_Fx2 *= 1e-4 / max(places_Fx2.std(), np.finfo(float).tiny)
    p_FxF = _affinities(features_FxM, min(PERPLEXITY, (F - 1) / 3))
    speed_Fx2, gain_Fx2 = np.zeros((F, 2)), np.ones((F, 2))
    for i in range(iterations):
        exaggeration, momentum = (4, 0.5) if i < iterations // 5 else (1, 0.8)
        kernel_FxF = 1 / (1 + _squared_distances(places_Fx2))
        np.fill_diagonal(kernel_FxF, 0)
        pull_FxF = (exaggeration * p_FxF - kernel_FxF / kernel_FxF.sum()) * kernel_FxF
        gradient_Fx2 = 4 * (pull_FxF.sum(1)[:, None] * places_Fx2 - pull_FxF @ places_Fx2)
        gain_Fx2 = np.maximum(np.where(gradient_Fx2 * speed_Fx2 < 0, gain_Fx2 + 0.2, gain_Fx2 * 0.8), 0.01)
        speed_Fx2 = momentum * speed_Fx2 - LEARNING_RATE * gain_Fx2 * gradient_Fx2
        places_Fx2 += speed_Fx2
    return places_Fx2


def _affinities(features_FxM: np.ndarray, perplexity: float) -> np.ndarray:
    """Returns t-SNE's joint probabilities of pairs; the neighbourhood of each point has this perplexity."""
    distances_FxF = _squared_distances(features_FxM)
    low_Fx1, high_Fx1 = np.full((2, len(features_FxM), 1), [[[-20.0]], [[20.0]]])  # log precision, by bisection
    for _ in range(40):
        middle_Fx1 = (low_Fx1 + high_Fx1) / 2
        log_p_FxF = -np.exp(middle_Fx1) * distances_FxF
        np.fill_diagonal(log_p_FxF, -np.inf)
        p_FxF = np.exp(log_p_FxF - log_p_FxF.max(1, keepdims=True))
        p_FxF /= p_FxF.sum(1, keepdims=True)
        entropy_Fx1 = -np.sum(p_FxF * np.log(np.maximum(p_FxF, np.finfo(float).tiny)), axis=1, keepdims=True)
        is_wide_Fx1 = entropy_Fx1 > np.log(perplexity)
        low_Fx1, high_Fx1 = np.where(is_wide_Fx1, middle_Fx1, low_Fx1), np.where(is_wide_Fx1, high_Fx1, middle_Fx1)
    return (p_FxF + p_FxF.T) / (2 * len(p_FxF))


def _squared_distances(points_FxD: np.ndarray) -> np.ndarray:
    """Returns the squared Euclidean distance of each pair."""
    squares_F = np.sum(points_FxD**2, axis=1)
    return np.maximum(squares_F[:, None] + squares_F[None, :] - 2 * points_FxD @ points_FxD.T, 0)


def chart(vocabulary: Vocabulary, feature_map: FeatureMap, selected: str, near: Sequence[str]) -> dict[str, Any]:
    """Returns the options of the scatter plot.

    Args:
        vocabulary: The words, the most frequent first.
        feature_map: Their places.
        selected: The selected word; may be unknown.
        near: Its neighbours.
    """
    groups: dict[str, list[str]] = {name: [] for name in COLOURS}
    groups['selected word'] = [selected] if selected in vocabulary.ids else []
    groups['neighbour'] = [word for word in near if word != selected]
    marked = {*groups['selected word'], *groups['neighbour']}
    groups['frequent word'] = [word for word in vocabulary.words[:NUM_POINTS] if word not in marked]
    axis: dict[str, Any] = {
        'type': 'value',
        'min': 'dataMin',
        'max': 'dataMax',
        'axisLabel': {'show': False},
        'axisTick': {'show': False},
    }
    axis |= {'nameLocation': 'middle', 'nameGap': 8, 'splitLine': {'show': False}, 'axisLine': {'show': False}}
    return {
        'animationDuration': 300,
        'grid': {'left': 24, 'right': 56, 'top': 32, 'bottom': 24},
        'legend': {'top': 0, 'itemWidth': 10, 'itemHeight': 10, 'selectedMode': False},
        'xAxis': axis | {'name': feature_map.axes[0]},
        'yAxis': axis | {'name': feature_map.axes[1]},
        'dataZoom': [_zoom('xAxisIndex'), _zoom('yAxisIndex')],
        'series': [
            _series(name, [_point(vocabulary, feature_map, word, word in marked) for word in words], bool(marked))
            for name, words in groups.items()
        ],
    }


def _point(vocabulary: Vocabulary, feature_map: FeatureMap, word: str, marked: bool) -> Mapping[str, Any]:
    """Returns a word's place; its size falls with the logarithm of its rank, as frequency does by Zipf's law."""
    i = vocabulary.ids[word]
    smallest, largest = POINT_SIZES
    share = 1 - np.log1p(min(i, NUM_POINTS)) / np.log1p(NUM_POINTS)
    size = max(smallest + share * (largest - smallest), MARKED_SIZE if marked else 0)
    place = [round(float(x), 4) for x in feature_map.points_Vx2[i]]
    return {'name': word, 'value': place, 'symbolSize': round(size, 1)}


def _zoom(axis: str) -> dict[str, Any]:
    """Zooms with two fingers or with Ctrl and the wheel, so that the page still scrolls over the map."""
    return {'type': 'inside', axis: 0, 'zoomOnMouseWheel': 'ctrl', 'preventDefaultMouseMove': False}


def _series(name: str, points: Sequence[Mapping[str, Any]], any_marked: bool) -> dict[str, Any]:
    """Returns the points of one colour; where a word is selected, frequent words fade and are named on hover alone."""
    faded = any_marked and name == 'frequent word'
    return {
        'name': name,
        'type': 'scatter',
        'data': list(points),
        'cursor': 'pointer',
        'itemStyle': {'color': COLOURS[name], 'opacity': 0.45 if faded else 0.85},
        'label': {
            'show': not faded,
            'fontWeight': 'bold' if name == 'selected word' else 'normal',
            'formatter': '{b}',
            'position': 'right',
            'distance': 3,
            'fontSize': 12,
            'minMargin': 6,  # the page's font is wider than the one that ECharts measures
        },
        'labelLayout': {'hideOverlap': name != 'selected word'},
        'emphasis': {'label': {'show': True, 'fontSize': 15, 'fontWeight': 'bold'}},
        'z': 2 + list(COLOURS).index(name),
    }
