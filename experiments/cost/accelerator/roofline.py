"""What bounds a compiled program by the public figures of its chip, and scaling to 256 chips.

    python -m experiments.cost.accelerator.roofline             prints the tables of scaling
    python -m experiments.cost.accelerator.roofline --figure    and draws scaling.png

A program takes as long as the longest of its products, its traffic with the chip's memory, and what it sends, as if
these went on at once and nothing else took time: an upper bound of the speed.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments import results, study
from experiments.cost.accelerator.chips import CHIPS, TOPOLOGIES, Topology
from nplm_jax.reporting.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
Entries = Mapping[str, Mapping[str, Any]]  # by topology and by name
WEAK = 5120  # words of an update on each device, where there is weak scaling
STRONG = 16 * WEAK  # words of an update on all devices, where there is strong scaling
# The parts of what its results have that each device sends, of n devices in a ring: an all-reduce scatters and gathers.
_SENT = {'all-reduce': 2.0, 'all-gather': 1.0, 'all-to-all': 1.0}
HEADER = ['row', 'topology', 'data x model', 'words', 'GB', 'Gflop', 'GB moved', 'sent', 'MB sent']
HEADER += ['bound by', 'us', 'million words/s', 'of peak']
SCALING = ['row', 'mesh', 'chips', 'words of a chip', 'million words/s', 'of a chip', 'efficiency', 'bound by']


class Times(NamedTuple):
    """Seconds of an update, or of an evaluation, by what bounds it."""

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        """The longest of them."""
        return max(self)

    @property
    def bound(self) -> str:
        """The name of the longest of them."""
        return self._fields[self.index(self.seconds)]


def predict(entry: Mapping[str, Any], topology: Topology) -> Times:
    """Returns the times of a program that compiled."""
    chip = CHIPS[topology.chip]
    sending = sum(each['count'] * send_seconds(each, topology) for each in entry['collectives'])
    return Times(entry['tiled_flops'] / chip.figures.flops, entry['bytes'] / chip.figures.memory_bandwidth, sending)


def send_seconds(collective: Mapping[str, Any], topology: Topology) -> float:
    """Returns the seconds of a collective: those of its bytes over the links, and those of its hops."""
    chip, n, size = CHIPS[topology.chip], collective['devices'] or topology.num_devices, collective['bytes']
    links = topology.links if n == topology.num_devices else max(1, topology.links // len(topology.shape))
    if collective['kind'] == 'collective-permute':
        return size / chip.link + chip.hop
    if collective['kind'] == 'reduce-scatter':  # its result is the share of one device
        sent = (n - 1) * size
    else:
        sent = _SENT[collective['kind']] * (n - 1) / n * size
    return sent / (chip.link * links) + topology.hops * chip.hop


def words_per_second(entry: Mapping[str, Any], topology: Topology) -> float:
    """Returns the words a second of all devices."""
    return entry['words'] / predict(entry, topology).seconds


def table(entries: Entries) -> str:
    """Returns one line for each program."""
    rows = []
    for name, topology in TOPOLOGIES.items():
        for entry in entries[name].values():
            mesh = f'{entry["data"]} x {entry["model"]}' if entry['batch_size'] else 'evaluation'
            first = [entry['row'], name, mesh, f'{entry["words"]:,}']
            if 'memory' not in entry:
                rows.append([*first, 'does not fit', *['-'] * 8])
                continue
            times, sent = predict(entry, topology), entry['collectives']
            share = entry['flops'] / times.seconds / CHIPS[topology.chip].figures.flops
            numbers = [f'{sum(entry["memory"].values()) / 1e9:.2f}', f'{entry["flops"] / 1e9:,.1f}']
            numbers += [f'{entry["bytes"] / 1e9:.2f}', f'{sum(each["count"] for each in sent):.0f}']
            numbers += [f'{sum(each["count"] * each["bytes"] for each in sent) / 1e6:,.1f}', times.bound]
            numbers += [f'{times.seconds * 1e6:,.0f}', f'{entry["words"] / times.seconds / 1e6:,.2f}', f'{share:.0%}']
            rows.append([*first, *numbers])
    return markdown_table(HEADER, rows)


def scaling(entries: Entries, words: int = 0) -> dict[tuple[str, str], list[tuple[int, Mapping[str, Any]]]]:
    """Returns the programs of v5e by row and mesh, each with its number of chips.

    Args:
        entries: All programs.
        words: Words of an update on all devices, for strong scaling; 0 for as many on each device as a small mesh has.
    """
    found: dict[tuple[str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for name, topology in TOPOLOGIES.items():
        for entry in entries[name].values() if topology.chip == 'v5e' else ():
            n = topology.num_devices
            if 'memory' in entry and entry['batch_size'] == (words or WEAK * n):
                mesh = 'data' if entry['model'] == 1 else 'words' if entry['data'] == 1 else 'both'
                found.setdefault((entry['row'], mesh), []).append((n, entry))
    return {key: programs for key, programs in found.items() if len(programs) > 1}


def scaling_table(entries: Entries, words: int = 0) -> str:
    """Returns the predicted speed by the number of chips; the efficiency is that of a chip beside the smallest mesh."""
    topologies = {t.num_devices: t for t in TOPOLOGIES.values() if t.chip == 'v5e'}
    rows = []
    for (row, mesh), programs in scaling(entries, words).items():
        first = None
        for n, entry in programs:
            times = predict(entry, topologies[n])
            speed = entry['words'] / times.seconds
            first = first or speed / n
            numbers = [
                f'{entry["words"] // n:,}',
                f'{speed / 1e6:,.2f}',
                f'{speed / n / 1e6:,.2f}',
                f'{speed / n / first:.0%}',
            ]
            rows.append([row, mesh, n, *numbers, times.bound])
    return markdown_table(SCALING, rows)


def draw(entries: Entries, strong: int, path: pathlib.Path) -> None:
    """Draws the predicted words a second by the number of chips."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (the tables do without)

    figure = Figure(figsize=(10, 4), layout='constrained')
    topologies = {t.num_devices: t for t in TOPOLOGIES.values() if t.chip == 'v5e'}
    for axes, words, title in zip(figure.subplots(1, 2, sharey=True), (0, strong), ('weak', 'strong')):
        for (row, mesh), programs in scaling(entries, words).items():
            points = [(n, words_per_second(entry, topologies[n])) for n, entry in programs]
            axes.loglog(*zip(*points), marker='o', label=f'{row}, {mesh}')
        of = f'{WEAK:,} words on each chip' if title == 'weak' else f'{strong:,} words on all chips'
        axes.set(title=f'{title} scaling: {of}', xlabel='chips (v5e)', xticks=list(topologies))
        axes.set_xticklabels(map(str, topologies))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize='x-small')
    figure.axes[0].set_ylabel('predicted words/s')
    save_figure(figure, path)


def read(folder: pathlib.Path) -> Entries:
    """Returns all committed programs."""
    paths = {name: folder / f'{name}.json' for name in TOPOLOGIES}
    return {name: results.load(path)['entries'] if path.exists() else {} for name, path in paths.items()}


def define(parser: study.StudyParser) -> None:
    """Adds the flag."""
    parser.add_switch('--figure', 'draw scaling.png too')


def show(flags: study.Flags) -> str:
    """Returns the tables of weak and of strong scaling."""
    entries = read(HERE / 'results')
    if flags.figure:
        draw(entries, STRONG, HERE / 'scaling.png')
    return '\n\n'.join([scaling_table(entries), scaling_table(entries, STRONG)])


if __name__ == '__main__':
    study.run(__doc__, define=define, show=show)
