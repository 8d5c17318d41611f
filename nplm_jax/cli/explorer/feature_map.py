"""The map of a network's word features: words as points in the plane, as the options of an ECharts scatter plot.

Dims: V vocabulary, M features a word, F frequent words on the map, K words of a list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary

NUM_POINTS = 400  # the most frequent words are on the map, and every word that is selected or near it
COLOURS = {'frequent word': '#64748b', 'neighbour': '#2f7de1', 'selected word': '#ea580c'}
POINT_SIZES = 4, 14  # pixels, of the rarest and of the most frequent word on the map
MARKED_SIZE = 10  # pixels at least, of the selected word and its neighbours


class FeatureMap(NamedTuple):
    """The plane through the features of the frequent words in which these differ most.

    Attributes:
        points_Vx2: The place of each word.
        axes: The names of both axes.
    """

    points_Vx2: np.ndarray
    axes: tuple[str, str]


def project(features_VxM: np.ndarray, num_points: int = NUM_POINTS) -> FeatureMap:
    """Projects all words on the first two principal components of the most frequent ones.

    One or two features a word are their own map.
    """
    features_VxM = np.asarray(features_VxM, np.float64)
    M = features_VxM.shape[1]
    if M <= 2:
        return FeatureMap(np.pad(features_VxM, ((0, 0), (0, 2 - M))), ('feature 1', 'feature 2' if M == 2 else ''))
    mean_M = features_VxM[:num_points].mean(0)
    _, sizes, components = np.linalg.svd(features_VxM[:num_points] - mean_M, full_matrices=False)
    share = sizes**2 / max(np.sum(sizes**2), np.finfo(float).tiny)
    first, second = (f'principal component {i + 1}: {share[i]:.0%} of the variance' for i in range(2))
    return FeatureMap((features_VxM - mean_M) @ components[:2].T, (first, second))


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
    axis = {'type': 'value', 'scale': True, 'axisLabel': {'show': False}, 'axisTick': {'show': False}}
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
        },
        'labelLayout': {'hideOverlap': name != 'selected word'},
        'emphasis': {'label': {'show': True, 'fontSize': 15, 'fontWeight': 'bold'}},
        'z': 2 + list(COLOURS).index(name),
    }
