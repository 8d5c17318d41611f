"""Compiles the update and the evaluation for absent TPUs and H100s.

    python -m experiments.cost.accelerator.compile             compiles the missing results and prints the table
    python -m experiments.cost.accelerator.compile --show      prints the table of the committed results

--rows=mlp1,default --topologies=v5e-2x2,H100 compiles only these, and --until=12:30 starts nothing after that time.
Requires the packages listed in experiments/cost/accelerator/requirements.txt. README.md describes the columns.
"""

from __future__ import annotations

import itertools
import math
import pathlib
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

import jax

from experiments import results, study
from experiments.cost.accelerator import chips, hlo, programs
from experiments.sources import of_module
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import first_line, is_out_of_memory
from nplm_jax.utils.progress import progress_bar

RESULTS = pathlib.Path(__file__).parent / 'results'
WEAK = 5120  # words per update and device
STRONG = 16 * WEAK  # words per update over all devices, if the batch does not grow with the number of devices
SCALED = 'mlp1', 'default', 'mlp10'  # the rows that are compiled for every topology
SMALL = 'v5e-2x2', 'H100', 'H100-8'  # the topologies for which every row is compiled, in every mesh
NEWER = 'v6e-2x2', 'v5p-2x2x2'  # chips for which every row is compiled in one mesh
EVALUATED = 'v5e-2x2', 'H100'  # the topologies for which the evaluation is compiled on one device
HEADER = ['row', 'topology', 'data x model', 'words', 'GB', 'sent', 'MB sent']
PACKAGES = 'jax', 'jaxlib', 'libtpu', 'jax-cuda12-pjrt'


class Case(NamedTuple):
    """A program to compile: a row on data x model devices of a topology. A batch of 0 means the evaluation."""

    row: str
    topology: str
    data: int
    model: int
    batch_size: int

    @property
    def name(self) -> str:
        """The key of the case in the results for the topology."""
        return f'{self.row} {self.data}x{self.model} {self.batch_size or "evaluation"}'


def cases() -> list[Case]:
    """Returns all cases, ordered by the position of their row, topology and mesh.

    For topologies in SMALL, every row is compiled with the batch, the words, or both divided over the devices. For
    NEWER chips, every row is compiled with both divided. For other topologies, the rows in SCALED are compiled with the
    batch or both divided.
    """
    ranked = []
    for (i, row), (j, name) in itertools.product(enumerate(programs.ROWS), enumerate(chips.TOPOLOGIES)):
        topology = chips.TOPOLOGIES[name]
        n = topology.num_devices
        both = 2 ** math.ceil(math.log2(n) / 2)
        shares: tuple[int, ...]
        if name in SMALL:
            shares = n, both, 1  # number of devices that divide the batch
        elif name in NEWER:
            shares = (both,)
        else:
            shares = (n, both) if row in SCALED else ()
        for k, data in enumerate(dict.fromkeys(shares)):
            ranked.append((i + j + 2 * k, Case(row, name, data, n // data, WEAK * n)))
        if topology.chip == 'v5e' and row in SCALED:
            ranked.append((i + j + 3, Case(row, name, n, 1, STRONG)))
        if name in EVALUATED:
            ranked.append((i + j + 5, Case(row, name, 1, 1, 0)))
    return list(dict.fromkeys(case for _, case in sorted(ranked, key=lambda each: each[0])))


def compile_case(case: Case, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Compiles a case. Returns the statistics of its program, either per update or for the evaluated words.

    Args:
        case: The case.
        sizes: Config values that make the program smaller.
    """
    topology = chips.TOPOLOGIES[case.topology]
    if case.batch_size:
        update = programs.trace_update(case.row, topology, (case.data, case.model), case.batch_size, sizes)
        traced, updates, words = update.traced, programs.NUM_STEPS, case.batch_size
    else:
        traced, updates, words = programs.trace_evaluation(case.row, topology), 1, programs.EVALUATED
    entry: dict[str, Any] = {
        'row': case.row,
        'data': case.data,
        'model': case.model,
        'batch_size': case.batch_size,
        'words': words,
    }
    try:
        started = time.monotonic()
        compiled = traced.lower().compile()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return {**entry, 'fits': False, 'error': first_line(error)}
    entry['seconds'] = round(time.monotonic() - started, 1)
    memory, program = compiled.memory_analysis(), hlo.Program(compiled.as_text() or '')
    entry['memory'] = {
        'arguments': memory.argument_size_in_bytes,
        'outputs': memory.output_size_in_bytes - memory.alias_size_in_bytes,
        'temporaries': memory.temp_size_in_bytes,
    }
    entry['fits'] = sum(entry['memory'].values()) <= chips.CHIPS[topology.chip].memory
    entry['collectives'] = [{**each, 'count': each['count'] / updates} for each in program.collectives()]
    if case.batch_size:
        entry['checks'] = check(update, program, entry['collectives'], case.data, case.model)
    return entry


def check(
    update: programs.Update, program: hlo.Program, sent: list[dict[str, Any]], data: int, model: int
) -> dict[str, Any]:
    """Returns the number of forbidden operations and the number of collectives in a program.

    Args:
        update: The traced update.
        program: The program.
        sent: The collectives of the program, per update.
        data: The number of devices that divide the batch.
        model: The number of devices that divide the words.
    """
    V = -(-update.network.vocabulary_size // model)
    products = [arrays for arrays in program.products() if any(_is_over(V, array) for array in arrays)]
    gathers = [i for i, _ in program.sent() if i.kind == 'all-gather']
    return {
        'products': len(products),
        'float32_products': sum(all(array.kind == 'f32' for array in arrays) for arrays in products),
        'gathered_tables': sum(any(_is_over(V * model, array) for array in i.arrays) for i in gathers),
        'sent': sum(each['count'] for each in sent),
        'by_hand': at_most(update, data, model),
    }


def at_most(update: programs.Update, data: int, model: int) -> int:
    """Returns the maximum number of collectives in an update, one per array. XLA may combine several into one.

    With dense gradients, the gradient of each parameter and the NLL are summed over the batch. Over the words, each
    block of examples reduces the largest score, the sum of E and the target's score, and the gradients of the output
    layer's inputs are summed once. With sparse updates, the batch is divided over all devices, and the NLL and the
    gradients of each parameter, or of the rows of a table, are summed. If the words are divided, each output table also
    exchanges the rows of the examples and of the samples, the second moments of these rows, and the sum and the number
    of all moments.
    """
    network, summed = update.network, update.num_parameters + 1
    output: Any = network.output
    if data * model == 1:
        return 0
    if isinstance(output, SparseOutputLayer):
        return summed + (len(network.tables.words) * 5 if model > 1 else 0)
    blocks = -(-update.batch_size // data // output.block_size)
    return (summed if data > 1 else 0) + (3 * blocks + 1 if model > 1 else 0)


def _is_over(num_words: int, array: hlo.Array) -> bool:
    """Returns whether an array is a matrix in which one dimension, which may be padded, is the words."""
    return len(array.shape) > 1 and any(num_words <= size < num_words + 8 for size in array.shape)


def measure(flags: study.Flags) -> None:
    """Compiles the missing cases, writes each result immediately, and prints the table."""
    folder = flags.output
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [case for case in cases() if case.row in flags.rows and case.topology in flags.topologies]
    missing = [case for case in wanted if case.name not in read(folder, case.topology).get('entries', {})]
    with progress_bar(len(missing), 'compiling', ' programs') as bar:
        for case in missing:
            if flags.until and time.time() >= flags.until:
                break
            bar.set_description(f'{case.topology} {case.name}')
            entry = compile_case(case)
            jax.clear_caches()
            entry |= of_module('experiments.cost.accelerator.compile')  # a file may have entries from several commits
            entry['device'] = chips.TOPOLOGIES[case.topology].devices()[0].device_kind
            entry['versions'] = {**entry['versions'], **versions()}
            found = read(folder, case.topology)
            found['entries'] = {**found.get('entries', {}), case.name: entry}
            results.write(folder / f'{case.topology}.json', found)
            bar.update(1)
    print(study.shown(show, flags))


def versions() -> dict[str, str]:
    """Returns the versions of the compilers."""
    return {name: metadata.version(name) for name in PACKAGES}


def read(folder: pathlib.Path, topology: str) -> dict[str, Any]:
    """Returns the results for a topology, or an empty dictionary if there are none."""
    path = folder / f'{topology}.json'
    return results.load(path) if path.exists() else {}


def gigabytes(entry: Mapping[str, Any]) -> float:
    """Returns the memory that a program needs on each device, in GB."""
    return sum(entry['memory'].values()) / 1e9


def megabytes_sent(entry: Mapping[str, Any]) -> float:
    """Returns the total size of the results of a program's collectives, in MB."""
    return sum(each['count'] * each['bytes'] for each in entry['collectives']) / 1e6


def show(flags: study.Flags) -> str:
    """Returns one table row for each program of the rows and topologies that the flags name."""
    found = [
        (name, entry) for name in flags.topologies for entry in read(flags.output, name).get('entries', {}).values()
    ]
    return markdown_table(HEADER, [_cells(name, entry) for name, entry in found if entry['row'] in flags.rows])


def _cells(topology: str, entry: Mapping[str, Any]) -> list[Any]:
    mesh = f'{entry["data"]} x {entry["model"]}' if entry['batch_size'] else 'evaluation'
    first = [entry['row'], topology, mesh, f'{entry["words"]:,}']
    if 'memory' not in entry:
        return [*first, 'does not fit', '-', '-']
    num_sent = sum(each['count'] for each in entry['collectives'])
    return [*first, f'{gigabytes(entry):.2f}', f'{num_sent:.0f}', f'{megabytes_sent(entry):,.1f}']


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--rows', programs.ROWS, 'rows to compile')
    parser.add_names('--topologies', chips.TOPOLOGIES, 'topologies to compile for')
    parser.add_until()
    parser.add_output_path(RESULTS, folder=True)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
