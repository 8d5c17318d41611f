"""Tests that figures have visible labels, draw a line for each value, and mark the best point."""

import itertools
import json

import pytest

from nplm_jax.reporting import figures


@pytest.fixture
def drawn(monkeypatch):
    """Returns a list of the drawn figures, which are also written to files."""
    saved, save = [], figures.save_figure
    monkeypatch.setattr(figures, 'save_figure', lambda figure, path: saved.append(figure) or save(figure, path))
    return saved


def labels(axis):
    """Returns the labelled numbers within the limits of an axis."""
    axis.axes.figure.draw_without_rendering()
    low, high = axis.get_view_interval()
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels())
    return [float(label.get_text()) for place, label in ticks if low <= place <= high and label.get_text()]


@pytest.mark.parametrize('low,high', [(110, 190), (131, 134), (1.2, 1.4), (90, 2_000), (2, 50_000), (250, 251)])
def test_a_learning_curve_has_labels_however_little_it_spans(tmp_path, drawn, low, high):
    rows = [{'step': i, 'epoch': i, 'seconds': 1.0, 'valid_perplexity': y} for i, y in enumerate([high, low])]
    (tmp_path / 'metrics.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    assert figures.draw_learning_curve(tmp_path, 'a').read_bytes().startswith(b'\x89PNG')
    numbers = labels(drawn[0].axes[0].yaxis)
    assert 2 <= len(numbers) <= 20 and len(set(numbers)) == len(numbers)
    assert all(low / 1.5 <= number <= high * 1.5 for number in numbers)


def test_a_dollar_in_a_name_is_no_formula(tmp_path):
    (tmp_path / 'metrics.jsonl').write_text('{"step": 1, "epoch": 1, "seconds": 1.0, "valid_perplexity": 5}\n')
    assert figures.draw_learning_curve(tmp_path, r'a$\foo$').read_bytes().startswith(b'\x89PNG')


def test_a_sweep_over_two_keys_joins_the_points_that_differ_in_one_and_marks_the_best(tmp_path, drawn):
    points = [({'name': f'{m}{h}', 'model.m': m, 'model.h': h}, 300.0 - m - h) for m in (60, 30, 10) for h in (5, 50)]
    assert figures.draw_sweep(points, path := tmp_path / 'table.png') == path and path.exists()
    axes, other = drawn[0].axes
    lines = [list(line.get_ydata()) for line in axes.lines]
    assert [285.0, 265.0, 235.0] in lines and len(lines) == 4 and lines[-1] == [190.0]
    assert (axes.get_xlabel(), other.get_xlabel()) == ('model.m', 'model.h') and len(labels(axes.yaxis)) >= 2


def test_the_means_of_a_sweep_with_a_diverged_point_are_over_equal_settings(tmp_path, drawn):
    perplexities = {(1, 8): 400.0, (1, 64): 100.0, (4, 8): 380.0, (4, 64): float('inf')}
    points = [({'optimizer.learning_rate': r, 'model.h': h}, valid) for (r, h), valid in perplexities.items()]
    assert figures.draw_sweep(points, tmp_path / 'table.png')
    means = {a.get_xlabel(): list(a.lines[-2].get_ydata()) for a in drawn[0].axes}
    assert means['optimizer.learning_rate'] == pytest.approx([400, 380])  # the rate 4 has no other point
    assert means['model.h'] == pytest.approx([400, 100])


def test_points_of_a_sweep_that_differ_in_several_keys_have_no_mean(tmp_path, drawn):
    points = [({'model.h': h, 'model.m': h}, 100.0 + h) for h in (8, 64)]
    assert figures.draw_sweep(points, tmp_path / 'table.png')
    assert all('geometric mean' not in axes.get_legend_handles_labels()[1] for axes in drawn[0].axes)


def test_no_point_of_a_sweep_over_other_words_is_marked(tmp_path, drawn):
    points = [({'corpus.min_count': count}, 100.0 - count) for count in (1, 3)]
    figures.draw_sweep(points, tmp_path / 'table.png', comparable=False)
    assert len(drawn[0].axes[0].lines) == 1 and 'Best' not in drawn[0].get_suptitle()


def test_values_that_are_no_numbers_are_drawn_by_name(tmp_path, drawn):
    points = [({'output.kind': kind}, 100.0 + i) for i, kind in enumerate(['full', 'nce', 'two_level'])]
    assert figures.draw_sweep([*points, ({'output.kind': 'sampled'}, float('inf'))], tmp_path / 'table.png')
    drawn[0].draw_without_rendering()
    ticks = [label.get_text() for label in drawn[0].axes[0].get_xticklabels()]
    assert ticks == ['full', 'nce', 'two_level']


def test_seeds_are_drawn_by_name(tmp_path, drawn):
    assert figures.draw_sweep([({'seed': seed}, 100.0 + seed) for seed in (1, 2, 3)], tmp_path / 'table.png')
    drawn[0].draw_without_rendering()
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ['1', '2', '3']


def test_a_sweep_over_three_keys_has_a_panel_for_each_the_largest_effect_first(tmp_path, drawn):
    grid = itertools.product((100, 50), (2, 3), (False, True))
    points = [({'model.h': h, 'model.n': n, 'model.direct': d}, 300.0 - h - 40 * n + d) for h, n, d in grid]
    assert figures.draw_sweep(points, path := tmp_path / 'table.png') == path and path.exists()
    panels = drawn[0].axes
    assert [axes.get_xlabel() for axes in panels] == ['model.h', 'model.n', 'model.direct']
    drawn[0].draw_without_rendering()
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ['50', '100']  # rising
    for axes in panels:
        *lines, mean, best = axes.lines
        assert sum(len(line.get_xdata()) for line in lines) == 8 and len(lines) == 4
        assert list(best.get_ydata()) == [80.0] and len(mean.get_xdata()) == 2
    assert panels[1].lines[-2].get_ydata()[0] == pytest.approx((120 * 121 * 170 * 171) ** 0.25)
    assert 'model.h=100, model.n=3, model.direct=False (80)' in drawn[0].get_suptitle()
    assert len(labels(panels[0].yaxis)) >= 2


def test_the_labels_of_many_long_values_do_not_overlap(tmp_path, drawn):
    families, rates = ['nplm', 'residual', 'window_lstm', 'modified_kneser_ney'], [10.0**-i for i in range(9)]
    grid = itertools.product(families, rates, (1, 2))
    points = [({'model.family': f, 'optimizer.learning_rate': r, 'seed': s}, 100 + r + s) for f, r, s in grid]
    figures.draw_sweep(points, tmp_path / 'table.png')
    drawn[0].draw_without_rendering()
    for axes in drawn[0].axes:
        ticks = [label for label in axes.get_xticklabels() if label.get_text()]
        angles = [label.get_rotation() for label in ticks]
        places = [label.get_window_extent() for label in ticks]
        apart = all(a.x1 < b.x0 for a, b in itertools.pairwise(places))
        assert apart or set(angles) == {45.0} and all(a.x1 + 9 < b.x1 for a, b in itertools.pairwise(places))


@pytest.mark.parametrize('keys', ['', 'abc'])
def test_a_sweep_in_which_no_key_varies_has_no_figure(tmp_path, keys):
    points = [(dict.fromkeys(keys, 1), 5.0)]
    assert figures.draw_sweep(points, tmp_path / 'table.png') is None and not [*tmp_path.iterdir()]


def test_a_point_without_the_varying_key_may_be_the_best(tmp_path):
    points = [({}, 90.0), ({'model.h': 50}, 100.0)]
    assert figures.draw_sweep(points, path := tmp_path / 'table.png') == path and path.exists()


def test_slices_have_a_panel_for_each_parameter_with_a_logarithmic_axis_where_the_values_span_a_decade(tmp_path, drawn):
    points = [({'rate': 0.01, 'h': 20, 'direct': True}, 9.0), ({'rate': 1.0, 'h': 30, 'direct': False, 'k': 1}, 8.0)]
    figures.draw_slices(points, tmp_path / 'slices.png')
    panels = {axes.get_xlabel(): axes for axes in drawn[0].axes}
    assert {key: axes.get_xscale() for key, axes in panels.items()} == {
        'rate': 'log',
        'h': 'linear',
        'direct': 'linear',
        'k': 'linear',
    }
    assert [label.get_text() for label in panels['direct'].get_xticklabels()] == ['True', 'False']
    assert panels['k'].lines[0].get_ydata().tolist() == [8.0] and panels['h'].lines[1].get_xdata().tolist() == [30]


def test_importances_are_bars_from_the_most_important_down(tmp_path, drawn):
    figures.draw_importances({'rate': 0.8, 'h': 0.2}, tmp_path / 'importance.png')
    (axes,) = drawn[0].axes
    assert [bar.get_width() for bar in axes.patches] == [0.8, 0.2] and axes.yaxis_inverted()
