"""The cost of an update in the paper's example: counts from compiled programs, and predictions for more devices.

    python -m experiments.paper.parallel.table                          prints the tables of this folder's README
    JAX_NUM_CPU_DEVICES=8 python -m experiments.paper.parallel.table --measure   compiles again
    python -m experiments.paper.parallel.table --figure --flops=1e14 --network=4e11   another machine

Simulated devices verify communication and computation, but not speed.
"""

import dataclasses
import pathlib

import jax

from configs import ap_news
from experiments import results, study
from experiments.paper.parallel import counts, program
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.errors import BadInput

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
MODEL = dataclasses.replace(config_lib.from_config(ap_news.get_config()).model, direct=True)  # as in section 3.2
VOCABULARY = 17_964  # |V| of the paper's AP News
BATCH = 1024
MESHES = ((1, 1), (8, 1), (1, 8), (4, 2), (2, 4))
DEVICES = tuple(2**i for i in range(13))
HELP = {  # field of counts.Machine -> help text of its flag
    'flops': 'speed of matrix products on each device [flop/s]',
    'memory': 'memory bandwidth of each device [bytes/s]',
    'network': 'network bandwidth of each device [bytes/s]',
    'latency': 'latency of a message between devices [s]',
}


def measure() -> None:
    """Compiles every mesh and writes results/compiled.json after each of them."""
    needed, present = max(d * m for d, m in MESHES), jax.device_count()
    if needed > present:
        raise BadInput(
            '--measure', f'requires {needed} devices, but JAX has {present}; set JAX_NUM_CPU_DEVICES={needed}'
        )
    facts = of_module('experiments.paper.parallel.table')
    meshes: dict[str, dict[str, float]] = {}
    for d, m in MESHES:
        meshes[f'{d}x{m}'] = program.measure(MODEL, VOCABULARY, BATCH, d, m)
        results.write(RESULTS / 'compiled.json', {'meshes': meshes, **facts})


def compiled() -> str:
    """Returns the table of the compiled programs and the formulas."""
    by_mesh, rows = results.read(RESULTS, 'compiled')['meshes'], []
    for data, model in MESHES:
        measured = by_mesh[f'{data}x{model}']
        arguments = (MODEL, VOCABULARY, BATCH, data, model)
        numbers = (measured['bytes'], counts.sent(*arguments), measured['operations'], counts.operations(*arguments))
        rows.append([f'{data} x {model}', *(f'{n:,.0f}' for n in numbers)])
    return markdown_table(['mesh', 'bytes, compiled', 'formula', 'operations, compiled', 'of products, formula'], rows)


def predicted(machine: counts.Machine) -> str:
    """Returns the table of predicted times."""
    rows = []
    for p in DEVICES:
        best = counts.best_mesh(MODEL, VOCABULARY, BATCH, p, machine)
        times = [_microseconds(d, m, machine) for d, m in ((p, 1), (1, p), best)]
        rows.append([f'{p:,}', *times, f'{best[0]} x {best[1]}'])
    return markdown_table(['devices', 'batch only, µs', 'words only, µs', 'best mesh, µs', 'which'], rows)


def _microseconds(data: int, model: int, machine: counts.Machine) -> str:
    if data > BATCH:
        return '-'
    return f'{1e6 * counts.seconds(MODEL, VOCABULARY, BATCH, data, model, machine):,.0f}'


def draw(path: pathlib.Path, machine: counts.Machine) -> None:
    """Draws the predicted speed-up over one device."""
    import matplotlib.figure  # noqa: PLC0415 (only --figure needs it)

    alone = counts.seconds(MODEL, VOCABULARY, BATCH, 1, 1, machine)
    ways = {
        'batch only': lambda p: (p, 1),
        'words only': lambda p: (1, p),
        'best mesh': lambda p: counts.best_mesh(MODEL, VOCABULARY, BATCH, p, machine),
    }
    axes = (figure := matplotlib.figure.Figure(figsize=(7, 4.5), layout='constrained')).subplots()
    for name, mesh in ways.items():
        sizes = [p for p in DEVICES if mesh(p)[0] <= BATCH]
        speed = [alone / counts.seconds(MODEL, VOCABULARY, BATCH, *mesh(p), machine) for p in sizes]
        axes.loglog(sizes, speed, 'o-', label=name, base=2)
    axes.loglog(DEVICES, DEVICES, ':', color='grey', label='perfect', base=2)
    axes.set(xlabel='devices', ylabel='predicted speed-up', title=f'{BATCH:,} words per update, |V| = {VOCABULARY:,}')
    axes.legend()
    axes.grid(alpha=0.3)
    save_figure(figure, path, dpi=110)


def make(machine: counts.Machine) -> str:
    """Returns all tables of the README."""
    share = counts.share_of_output_layer(MODEL, VOCABULARY)
    heading = (
        f'The network has n={MODEL.n}, m={MODEL.m}, h={MODEL.h} and |V| = {VOCABULARY:,}. An update has {BATCH:,} '
        f'words. The output layer performs {share:.1%} of\nthe operations. '
        f'The paper sends {counts.numbers_a_word(MODEL):,} numbers per word, '
        f'and this implementation sends {counts.sent_over_words(MODEL, 1) // counts.FLOAT:,}.'
    )
    assumed = ', '.join(f'{k}={v:.0e}' for k, v in dataclasses.asdict(machine).items())
    return f'{heading}\n\n{compiled()}\n\nThe predictions assume {assumed}:\n\n{predicted(machine)}'


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--measure', 'compile the programs again and write results/compiled.json')
    parser.add_switch('--figure', 'also draw predicted.png, which for another machine is written to the working folder')
    for field in dataclasses.fields(counts.Machine):
        parser.add_argument(f'--{field.name}', type=study.positive(float), default=field.default, help=HELP[field.name])


def show(flags: study.Flags) -> str:
    """Returns all tables. Draws the figure if requested."""
    machine = counts.Machine(**{f.name: getattr(flags, f.name) for f in dataclasses.fields(counts.Machine)})
    if flags.figure:
        draw((HERE if machine == counts.Machine() else pathlib.Path()) / 'predicted.png', machine)
    return make(machine)


def main(flags: study.Flags) -> None:
    """Measures and prints all tables."""
    measure()
    print(study.shown(show, flags))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='measure')
