"""Tests the figure of surprisals: one panel per item, labels without overlap, and a note on omitted items."""

import math
import re

import matplotlib.image
import pytest

from nplm_jax.apps.psycholinguistics import figures, stimuli


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Returns a function that draws surprisals of 1 bit, 2 bits, ... and returns the note and the figure."""
    drawn = []
    monkeypatch.setattr(figures, 'save_figure', lambda figure, path, dpi: drawn.append(figure))

    def call(found, models=('net', 'counts'), in_vocabulary=None):
        bits_W = [float(row + 1) for row in range(len(found.words))]
        known = in_vocabulary or [True] * len(bits_W)
        note = figures.draw_surprisal(found, dict.fromkeys(models, bits_W), known, tmp_path / 'x.png')
        return note, drawn[-1]

    return call


def tick_words(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


def test_a_panel_for_each_item_and_a_line_for_each_model(draw):
    note, figure = draw(stimuli.from_text('The $5 dog\nI ran', 'x'))
    assert note == '' and [tick_words(axes) for axes in figure.axes] == [['The', '$5', 'dog'], ['I', 'ran']]
    assert [axes.get_title(loc='left') for axes in figure.axes] == ['item 1', 'item 2']
    assert [list(line.get_ydata()) for line in figure.axes[1].lines] == [[4, 5], [4, 5]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['net', 'counts']


def test_several_columns_of_items_name_a_panel(draw):
    columns = {'item': [1, 1], 'condition': ['a', 'b'], 'zone': [1, 1], 'word': ['I', 'ran']}
    _, figure = draw(stimuli.from_columns(columns, 'x', stimuli.ColumnNames(('item', 'condition'))))
    assert [axes.get_title(loc='left') for axes in figure.axes] == ['item 1, condition a', 'item 1, condition b']


def test_words_outside_the_vocabulary_are_grey_and_the_figure_says_so(draw):
    _, figure = draw(stimuli.from_text('The zzz', 'x'), in_vocabulary=[True, False])
    assert [label.get_color() for label in figure.axes[0].get_xticklabels()] == ['black', '#999999']
    assert figure.get_supxlabel()


def test_as_many_panels_as_fit_are_drawn(draw):
    note, figure = draw(stimuli.from_text('\n'.join(['I ran'] * 11 + ['extraordinarily ' * 12, 'I']), 'x'))
    assert len(figure.axes) == 12 and re.findall(r'\d+', note) == ['28', '35']
    assert figure.get_supxlabel() in note


def test_a_long_item_goes_on_in_the_next_panels_without_an_overlap_and_is_cut_at_the_last(draw):
    words = [f'{"a" * (i % 20)}b' for i in range(400)]
    note, figure = draw(stimuli.from_text(' '.join(words), 'x'))
    shown = [word for axes in figure.axes for word in tick_words(axes)]
    assert len(figure.axes) == figures.MAX_PANELS and shown == words[: len(shown)]
    assert re.findall(r'\d+', note) == [str(len(shown)), '400']
    for axes in figure.axes:
        ends = [(x - len(w) / 2, x + len(w) / 2) for x, w in zip(axes.get_xticks(), tick_words(axes))]
        assert all(right < left for (_, right), (left, _) in zip(ends, ends[1:]))
        assert axes.get_xlim()[0] <= ends[0][0] and ends[-1][1] <= axes.get_xlim()[1]


def test_the_file_is_a_picture_even_where_a_surprisal_is_infinite(tmp_path):
    found = stimuli.from_text('I ran', 'x')
    figures.draw_surprisal(found, {'net': [math.inf, 2.0]}, [True, True], tmp_path / 'x.png')
    assert matplotlib.image.imread(tmp_path / 'x.png').ndim == 3
