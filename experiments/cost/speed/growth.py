"""Measures how the cost of training grows with |V| and with the context, and draws the growth of every cost.

    python -m experiments.cost.speed.growth             runs the measurements and prints the table
    python -m experiments.cost.speed.growth --figure    draws results/growth.png from the committed results
    python -m experiments.cost.speed.growth --show      prints the table of the committed results
    python -m experiments.cost.speed.growth --quick     runs a check with two small vocabularies

The networks are MLP9, with the exact and with a sampled loss, and the Transformer of experiments/beyond/lineage with
longer and longer streams and memories. Each measurement is a separate process, so its peak memory is its own. The
figure also shows the costs of long texts (experiments/cost/scale) and of many devices (experiments/cost/accelerator).
"""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing
import os
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any

from configs import brown
from experiments import results, study
from experiments.cost.accelerator import compile as accelerator
from experiments.cost.scale import ngrams, preparation
from experiments.cost.speed import contestants, memory, problem
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting.figures import label_log_axis
from nplm_jax.reporting.text import markdown_table, save_figure, style_axes
from nplm_jax.runs.precision_choice import native_precision

RESULTS = pathlib.Path(__file__).parent / 'results'
CONTEXT_BATCH = 2048  # words per update of the Transformer
EXACT, SAMPLED, CONTEXT = 'exact loss', 'sampled loss', 'Transformer'
POINTS = (  # the network, its size (|V| of the losses, T = R of the Transformer) and the number of updates per turn
    *((EXACT, 2**power, max(2, 2 ** (18 - power))) for power in (14, 16, 18, 20)),
    *((SAMPLED, 2**power, 64) for power in (14, 16, 18, 20)),
    *((CONTEXT, 2**power, 2) for power in (4, 6, 8, 10)),
)
SMALL = ((EXACT, 2**9, 2), (SAMPLED, 2**10, 2))  # the points of --quick
TPUS = {4: 'v5e-2x2', 16: 'v5e-4x4', 256: 'v5e-16x16'}  # number of devices -> results of experiments/cost/accelerator
Point = tuple[float, float, float]  # size, cost, memory in GB
HEADER = ['network', 'size', 'µs a word', 'words/s', 'peak MB']


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_count('--batch', 512, 'number of words per update of MLP9')
    parser.add_count('--rounds', 3, 'number of timed turns')
    parser.add_output_path(RESULTS / 'growth.json')
    parser.add_switch('--figure', 'draw the figure from the committed results without measuring anything')
    parser.add_quick(batch=64, rounds=1, output='runs/quick/growth.json')


def cost(network: str, size: int, steps: int, batch: int, rounds: int, precision: str) -> dict[str, Any]:
    """Returns the seconds per word in each turn of `steps` updates, and the peak memory of this process in bytes."""
    problem.set_up()
    if network == CONTEXT:
        keys = {'model.bptt_length': size, 'model.memory': size}
        config, V, batch = config_lib.override(problem.rung('attention'), keys), brown.VOCABULARY, CONTEXT_BATCH
    else:
        config, V = brown.get_config('mlp9' if network == EXACT else 'mlp9,sampled'), size
    turn = contestants.find('ours')(problem.make_problem(config, V, batch, steps, rounds + 1), precision)
    seconds = [turn_seconds / (steps * batch) for turn_seconds in problem.alternate({network: turn}, rounds)[network]]
    return {'network': network, 'size': size, 'seconds_per_word': seconds, 'peak_bytes': memory.resident('VmHWM')}


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the results after each point."""
    precision, rows = native_precision(), list[dict[str, Any]]()
    facts = {'batch': flags.batch, 'precision': precision, 'load_before': os.getloadavg()[0]}
    facts |= of_module('experiments.cost.speed.growth')
    spawn = multiprocessing.get_context('spawn')
    for network, size, steps in SMALL if flags.quick else POINTS:
        with concurrent.futures.ProcessPoolExecutor(1, spawn) as executor:
            rows.append(executor.submit(cost, network, size, steps, flags.batch, flags.rounds, precision).result())
        yield {**facts, 'rows': rows}


def seconds_per_word(row: dict[str, Any]) -> float:
    """Returns the median time per word."""
    return statistics.median(row['seconds_per_word'])


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line per point."""
    rows = []
    for row in measured['rows']:
        seconds = seconds_per_word(row)
        speed = [f'{seconds * 1e6:,.0f}', f'{1 / seconds:,.0f}', f'{row["peak_bytes"] / 1e6:,.0f}']
        rows.append([row['network'], f'{row["size"]:,}', *speed])
    return markdown_table(HEADER, rows)


def columns(measured: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], dict[str, list[Point]]]]:
    """Yields the columns of the figure.

    Each consists of the labels of its axes (size, cost, memory), and of a dictionary that maps the name of a line to
    its points.
    """

    def trained(network: str) -> list[Point]:
        rows = [row for row in measured['rows'] if row['network'] == network]
        return [(row['size'], seconds_per_word(row) * 1e6, row['peak_bytes'] / 1e9) for row in rows]

    yield ('|V|', 'µs per training word', 'GB'), {EXACT: trained(EXACT), SAMPLED: trained(SAMPLED)}
    yield ('words of context', 'µs per training word', 'GB'), {CONTEXT: trained(CONTEXT)}

    texts = [text['first'] for text in results.read(preparation.RESULTS, 'preparation')['texts']]
    sizes = results.load(ngrams.RESULTS)['sizes']
    prepared = [(t['words'], preparation.seconds_of(t), preparation.peak_bytes(t) / 1e9) for t in texts]
    ours = [(s['words'], s['nplm_jax']) for s in sizes]
    estimated = [(words, row['seconds'], preparation.peak_bytes(row) / 1e9) for words, row in ours]
    yield ('words of text', 'seconds', 'GB'), {'preparation': prepared, 'estimation of a 5-gram': estimated}

    meshes: dict[str, list[Point]] = {'batch divided': [], 'batch and words divided': []}
    for n, topology in TPUS.items():
        entries = accelerator.read(accelerator.RESULTS, topology)['entries']
        for points, data in zip(meshes.values(), (n, math.isqrt(n))):
            entry = entries[accelerator.Case('mlp10', topology, data, n // data, accelerator.WEAK * n).name]
            points.append((n, accelerator.megabytes_sent(entry), accelerator.gigabytes(entry)))
    yield ('devices (TPU v5e, compiled)', 'MB sent per update', 'GB per device'), meshes


def draw(measured: dict[str, Any], path: pathlib.Path) -> None:
    """Draws each cost above the memory that it needs, on a logarithmic axis if it varies by a factor of ten."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    axes = (figure := matplotlib.figure.Figure(figsize=(13, 6), layout='constrained')).subplots(2, 4, sharex='col')
    for column, (labels, lines) in zip(axes.T, columns(measured)):
        for i, panel in enumerate(column):
            style_axes(panel, 'y')
            for name, points in lines.items():
                panel.plot([p[0] for p in points], [p[1 + i] for p in points], 'o-', label=name, markersize=4)
            panel.set(xscale='log', ylabel=labels[1 + i])
            heights = [p[1 + i] for points in lines.values() for p in points]
            if max(heights) > 10 * min(heights):
                panel.set_yscale('log')
                label_log_axis(panel.yaxis)
            else:
                panel.set_ylim(bottom=0)
        column[0].legend(frameon=False, loc='lower left', bbox_to_anchor=(0, 1))
        column[1].set_xlabel(labels[0])
    save_figure(figure, path)


def show(flags: study.Flags) -> str:
    """Returns the table. Draws the figure if requested."""
    measured = problem.recorded(flags)
    if flags.figure:
        draw(measured, flags.output.with_suffix('.png'))
    return make_table(measured)


def main(flags: study.Flags) -> None:
    """Measures the points unless --figure is set, and prints the table."""
    if not flags.figure:
        results.write_each(flags.output, measure(flags))
    print(study.shown(show, flags))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
