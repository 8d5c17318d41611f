"""Compares several runs in tables and figures, for `nplm runs` and `nplm compare`."""

import itertools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from nplm_jax.reporting.catalog import METRICS, PER_UNIT, SPLITS, Run, expand_run, is_finished, read_run, suggest
from nplm_jax.reporting.description import describe_model
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.errors import BadInput

BEST = '*'
_LEGEND = f'{BEST} marks the best of the comparable runs'


def check_finished(folders: Sequence[str]) -> None:
    """Raises BadInput unless all given runs are finished. The message lists existing finished runs."""
    for folder in folders:
        path = expand_run(folder)
        if not is_finished(path):
            raise BadInput('RUN', f'is not a finished run; {suggest(path)}', value=folder)


def run_names(folders: Sequence[str]) -> list[str]:
    """Returns a unique name for each run: the name of its folder.

    If this name is not unique, or is `mixture`, the path of the folder is used instead.
    """
    names = [os.path.basename(os.path.abspath(folder)) for folder in folders]
    taken = [*names, 'mixture']
    paths = [os.path.abspath(expand_run(folder)) if str(folder) == 'mixture' else str(folder) for folder in folders]
    return [path if taken.count(name) > 1 else name for name, path in zip(names, paths)]


def read_all(folders: Sequence[pathlib.Path]) -> tuple[list[Run], list[str]]:
    """Reads runs. Returns the readable runs, and an error message for each damaged run."""
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except BadInput as error:
            damaged.append(str(error))
    return runs, damaged


def describe(run: Run) -> dict[str, Any]:
    """Returns the table row of a run as JSON-serializable values."""
    results = run.results or {}
    return {
        'folder': str(run.folder),
        'name': run.values['name'],
        'state': run.state,
        'corpus': run.values['corpus.name'],
        'model': describe_model(run.values),
        'vocabulary': results.get('vocabulary'),
        'perplexity': {split: run.perplexity(split) for split in SPLITS},
        **{key: results.get(key, {}).get('test') for key in PER_UNIT},
        'seconds': None if run.imported else results.get('seconds'),
        'date': run.date,
    }


def best_rows(columns: Sequence[float | None], groups: Sequence[str]) -> set[int]:
    """Returns the indices of the best rows: in each group with several numbers, the row with the lowest number.

    Numbers that are not finite are ignored.

    Args:
        columns: The number in each row, or None if it is missing.
        groups: The group of each row.
    """
    best = set()
    for group in set(groups):
        rows = [i for i, number in enumerate(columns) if groups[i] == group and number is not None]
        if len(rows) > 1 and columns[lowest := min(rows, key=lambda i: float(columns[i] or 0))] != math.inf:
            best.add(lowest)
    return best


def differ_in_tokens(runs: Sequence[Run]) -> bool:
    """Returns whether runs have different kinds of tokens, or tokenize the same test text differently."""
    if len({run.values['corpus.tokens'] for run in runs}) > 1:
        return True
    measured = {run.text: run for run in runs if run.bits_per_byte is not None}
    return any(a.has_test_text_of(b) for a, b in itertools.combinations(measured.values(), 2))


def make(
    runs: Sequence[Run],
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]] | None = None,
    marked: str = '',
) -> str:
    """Returns a Markdown table of runs and a legend. BEST marks the best of the runs that are comparable.

    If the tokens of the runs differ, the table has columns for the perplexity per word and the bits per byte of the
    test text.

    Args:
        runs: The runs.
        names: The name of each run.
        columns: Additional columns with one number per run, by header.
        marked: The header of the additional column in which the best run is marked. Empty to mark none.
    """
    groups = [run.text for run in runs]
    numbers: dict[str, Sequence[float | None]] = {s: [run.perplexity(s) for run in runs] for s in SPLITS}
    best = {
        split: best_rows(numbers[split], groups) for split in SPLITS if split != 'train'
    }  # training perplexities are not marked
    if differ_in_tokens(runs):
        numbers['per word'] = [(run.results or {}).get('perplexity_per_word', {}).get('test') for run in runs]
        numbers['bits/byte'] = [run.bits_per_byte for run in runs]
        texts = [
            next(str(i) for i, run in enumerate(runs) if run is other or run.has_test_text_of(other)) for other in runs
        ]
        best |= {header: best_rows(numbers[header], texts) for header in ('per word', 'bits/byte')}
    numbers |= columns or {}
    if columns and marked:
        best[marked] = best_rows(columns[marked], [''] * len(runs))
    rows = []
    for i, row in enumerate(map(describe, runs)):
        cells = [_cell(header, column[i], i in best.get(header, ())) for header, column in numbers.items()]
        seconds = f'{row["seconds"]:,.0f}' if row['state'] == 'finished' else row['state']
        rows.append([names[i], row['corpus'], row['model'], row['vocabulary'] or '-', *cells, seconds, row['date']])
    table = markdown_table(['run', 'corpus', 'model', 'vocabulary', *numbers, 'seconds', 'date'], rows)
    return f'{table}\n\n{_LEGEND}' if any(best.values()) else table


def _cell(header: str, number: float | None, is_best: bool) -> str:
    if number is None:
        return '-'
    form = '.3f' if 'bits/byte' in header else '.1f' if number < 1e6 else '.2g'
    return f'{number:{form}}{" " + BEST if is_best else ""}'


def draw(
    runs: Sequence[Run], names: Sequence[str], scores: Mapping[str, Mapping[str, Any]], path: pathlib.Path
) -> None:
    """Draws learning curves (validation perplexity per epoch) and a bar chart of perplexities.

    Args:
        runs: The runs, with their recorded perplexities.
        names: The name of each run.
        scores: The scores of the runs and of their mixture on a text, by name. Empty if no text was scored.
        path: The PNG file to write.
    """
    import matplotlib.figure  # noqa: PLC0415 (slow to import)

    from nplm_jax.reporting.run_reporter import read_metrics  # noqa: PLC0415 (imports JAX)

    curves = []
    for run, name in zip(runs, names):
        rows = [r for r in read_metrics(run.folder / METRICS) if r.get('valid_perplexity') is not None]
        curves += [(name, [r['epoch'] for r in rows], [r['valid_perplexity'] for r in rows])] if rows else []
    figure = matplotlib.figure.Figure(figsize=(11 if curves else 6, 4.2), layout='constrained')
    axes = figure.subplots(1, 2 if curves else 1, squeeze=False)[0]
    for name, epochs, perplexities in curves:
        axes[0].plot(epochs, perplexities, 'o-', markersize=3, label=name)
    if curves:
        axes[0].set(xlabel='epoch', ylabel='validation perplexity')
        axes[0].grid(alpha=0.3)
        axes[0].legend()
    bars = {split: [run.perplexity(split) or 0 for run in runs] for split in SPLITS[1:]}
    ticks = [*names, *(name for name in scores if name not in names)]
    if scores:
        shares = sorted({f'{score["oov"]:.1%}' for score in scores.values()}, key=lambda s: float(s[:-1]))
        unknown = ' to '.join(dict.fromkeys((shares[0], shares[-1])))
        bars[f'text, {unknown} unknown'] = [scores[name]['perplexity'] for name in ticks]
    width = 0.8 / len(bars)
    for index, (label, heights) in enumerate(bars.items()):
        finite = [height if height < float('inf') else 0 for height in heights]
        shift = (index - (len(bars) - 1) / 2) * width
        drawn = axes[-1].bar([i + shift for i in range(len(heights))], finite, width, label=label)
        axes[-1].bar_label(drawn, [f'{h:.0f}' if h else '' for h in finite], fontsize=8)
    axes[-1].set_xticks(range(len(ticks)), ticks, rotation=20, ha='right', parse_math=False)
    axes[-1].set_ylabel('perplexity')
    axes[-1].legend(loc='lower center', bbox_to_anchor=(0.5, 1), ncols=len(bars), frameon=False)  # above the bars
    save_figure(figure, path)
