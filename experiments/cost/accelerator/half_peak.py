"""At which batch and width three networks pass half of a chip's peak by the model, and what is in the way below it.

    python -m experiments.cost.accelerator.half_peak              compiles what the results lack, and prints the tables
    python -m experiments.cost.accelerator.half_peak --show       prints the tables of the committed results
    python -m experiments.cost.accelerator.half_peak --figure     draws half_peak.png from them too

Each row is written as it comes; --until=12:30 begins none after that time. Needs the packages of
experiments/cost/accelerator/requirements.txt. README.md says what the tables are. Nothing runs on an accelerator.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax

from experiments import results, study
from experiments.cost.accelerator import chips, compile, programs, roofline
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.progress import progress_bar

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results' / 'half_peak.json'
TOPOLOGIES = {'v5e': 'v5e-2x2', 'H100': 'H100'}  # by the chip, of which one device is used
NETWORKS = {'paper': 'mlp1', 'lstm': 'lstm', 'transformer': 'transformer'}  # rows of programs.NETWORKS
# Sizes of each network, the first those of its config, the others in the same proportion.
SIZES = {
    'paper': ({'model.h': 50, 'model.m': 60}, {'model.h': 200, 'model.m': 240}, {'model.h': 800, 'model.m': 960}),
    **dict.fromkeys(('lstm', 'transformer'), tuple({'model.h': n, 'model.m': n} for n in (320, 1024, 4096))),
}
BATCHES = 256, 1024, 4096, 16_384  # words of an update
HALF = 0.5
LARGEST = 3  # arrays of a program that are recorded


class Case(NamedTuple):
    """A network whose layer has h units, in updates of so many words on one chip."""

    network: str
    chip: str
    h: int
    batch_size: int

    @property
    def name(self) -> str:
        """Its key in the results."""
        return f'{self.network} {self.chip} {self.h} {self.batch_size}'


def cases() -> list[Case]:
    """Returns all cases; first those of an H100, which compile in a few seconds, then those of the configs' sizes."""
    found = []
    for chip, rank in itertools.product(('H100', 'v5e'), range(3)):
        found += [Case(n, chip, SIZES[n][rank]['model.h'], b) for n in NETWORKS for b in BATCHES]
    return found


def compile_case(case: Case) -> dict[str, Any]:
    """Compiles a case. Returns what is known of an update."""
    topology = chips.TOPOLOGIES[TOPOLOGIES[case.chip]]
    (sizes,) = (sizes for sizes in SIZES[case.network] if sizes['model.h'] == case.h)
    update = programs.trace_update(NETWORKS[case.network], topology, (1, 1), case.batch_size, sizes)
    entry, program = compile.compile_program(update.traced, topology, 1, programs.NUM_STEPS)
    if program:
        V = update.network.vocabulary_size
        moved: collections.Counter[str] = collections.Counter()
        for shape, size in program.traffic().items():
            moved[_label(shape, V)] += size / programs.NUM_STEPS
        entry['most_moved'] = dict(moved.most_common(LARGEST))
    return {**case._asdict(), **sizes, 'words': case.batch_size, **entry}


def _label(shape: Iterable[int], V: int) -> str:
    """Returns the sides of an array as text, |V| for one of the words, which may be padded."""
    return ' x '.join('|V|' if V <= size < V + 8 else f'{size:,}' for size in shape if size > 1) or '1'


def measure(flags: study.Flags) -> None:
    """Compiles what the results lack, writes each case as it is compiled, and prints the tables."""
    path = flags.output
    found = results.load(path) if path.exists() else {'entries': {}}
    missing = [case for case in cases() if case.name not in found['entries']]
    with progress_bar(len(missing), 'compiling', ' programs') as bar:
        for case in missing:
            if flags.until and time.time() >= flags.until:
                break
            bar.set_description(case.name)
            found['entries'][case.name] = compile_case(case)
            jax.clear_caches()
            found |= of_module('experiments.cost.accelerator.half_peak')
            results.write(path, {**found, 'versions': {**found['versions'], **compile.versions()}})
            bar.update(1)
    print(show(flags))


def shares(entries: Mapping[str, Any]) -> dict[Case, tuple[float, str]]:
    """Returns the share of the peak and what bounds it, of the programs that were compiled and fit."""
    found = {}
    for case in cases():
        if (entry := entries.get(case.name, {})).get('fits'):
            times = _times(case, entry)
            peak = chips.CHIPS[case.chip].figures.flops
            found[case] = entry['flops'] / times.seconds / peak, times.bound
    return found


def _times(case: Case, entry: Mapping[str, Any]) -> roofline.Times:
    return roofline.predict(entry, chips.TOPOLOGIES[TOPOLOGIES[case.chip]])


def by_batch(entries: Mapping[str, Any]) -> str:
    """Returns a line for each network, chip and size: the share of the peak by batch, and from where it is half."""
    found, rows = shares(entries), []
    for network, chip in itertools.product(NETWORKS, TOPOLOGIES):
        for sizes in SIZES[network]:
            line = [Case(network, chip, sizes['model.h'], batch) for batch in BATCHES]
            cells = [f'{found[c][0]:.0%} {found[c][1]}' if c in found else _absent(entries.get(c.name)) for c in line]
            passed = next((f'{c.batch_size:,}' for c in line if c in found and found[c][0] >= HALF), '-')
            rows.append([network, chip, sizes['model.h'], sizes['model.m'], *cells, passed])
    return markdown_table(['network', 'chip', 'h', 'm', *(f'{b:,} words' for b in BATCHES), 'half from'], rows)


def _absent(entry: Mapping[str, Any] | None) -> str:
    return 'does not fit' if entry else '-'


def in_the_way(entries: Mapping[str, Any]) -> str:
    """Returns, of the largest batch below half of each network, chip and size: times, padding, and what moves most."""
    below = {case[:3]: (case, *found) for case, found in shares(entries).items() if found[0] < HALF}
    rows = []
    for network, chip in itertools.product(NETWORKS, TOPOLOGIES):
        for case, share, bound in (below[line] for line in below if line[:2] == (network, chip)):
            entry = entries[case.name]
            times, filled = _times(case, entry), entry['flops'] / entry['tiled_flops']
            moved = (f'{label} {size / entry["bytes"]:.0%}' for label, size in entry['most_moved'].items())
            numbers = [f'{case.batch_size:,}', f'{times.compute * 1e6:,.0f}', f'{times.memory * 1e6:,.0f}']
            numbers += [f'{filled:.0%}', f'{share:.0%}', bound, ', '.join(moved).replace('|', r'\|')]
            rows.append([network, chip, case.h, *numbers])
    header = ['network', 'chip', 'h', 'words', 'us of products', 'us of memory', 'not padding', 'of peak', 'bound by']
    return markdown_table([*header, 'moved most'], rows)


def draw(entries: Mapping[str, Any], path: pathlib.Path) -> None:
    """Draws the share of the peak against the batch, a line for each size."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (the tables do without)

    figure, found = Figure(figsize=(10, 6), layout='constrained'), shares(entries)
    panels = figure.subplots(len(TOPOLOGIES), len(NETWORKS), sharex=True, sharey=True)
    for axes, (chip, network) in zip(panels.flat, itertools.product(TOPOLOGIES, NETWORKS)):
        for h in (sizes['model.h'] for sizes in SIZES[network]):
            points = [(c.batch_size, share) for c, (share, _) in found.items() if c[:3] == (network, chip, h)]
            if points:
                axes.semilogx(*zip(*points), base=2, marker='o', label=f'h = {h}')
        axes.axhline(HALF, color='black', linewidth=0.8, linestyle='dotted')
        axes.set(title=f'{network}, {chip}', ylim=(0, 1), xticks=BATCHES)
        axes.set_xticklabels(f'{b:,}' for b in BATCHES)
        axes.grid(alpha=0.3)
        axes.legend(fontsize='x-small')
    figure.supxlabel('words of an update')
    figure.supylabel("predicted share of the chip's bfloat16 peak")
    save_figure(figure, path)


def show(flags: study.Flags) -> str:
    """Returns the two tables of the results that there are."""
    path = flags.output
    entries = results.load(path)['entries'] if path.exists() else {}
    if flags.figure:
        draw(entries, HERE / 'half_peak.png')
    return f'{by_batch(entries)}\n\n{in_the_way(entries)}'


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_switch('--figure', 'draw half_peak.png too')
    parser.add_until()
    parser.add_output_path(RESULTS)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
