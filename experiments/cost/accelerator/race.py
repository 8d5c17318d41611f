"""Measures one GPU for 25 minutes, starting with the most important rows, and writes each row immediately.

    python -m experiments.cost.accelerator.race [--minutes=25]    measures the missing rows and prints the table
    python -m experiments.cost.accelerator.race --rehearse        measures all rows at a small size (5 minutes, 2 cores)
    python -m experiments.cost.accelerator.race --quick           measures two rows again at a small size, as a check
    python -m experiments.cost.accelerator.race --show            only prints the table of the committed results
    python -m experiments.cost.accelerator.race --show --figure   also draws race.png: share of the peak by batch size

Each row is measured in a separate process and written to the file results/race/DEVICE/ROW.json. A rehearsal writes to
runs/race-rehearsal. A restarted race first measures the missing rows, and then the failed rows.
The name of a row states what it measures: the words/s and the share of the device's bfloat16 peak (NETWORK-BATCH);
nplm-jax's training step, alternating with plain JAX or torch.compile (-plain_jax, -torch_compile); sixteen learning
rates and decays, trained by vmap and one by one (-vmap); and the time to the paper's validation perplexity on Brown
(-perplexity). Only some rows require PyTorch or the corpus.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments import results, study
from experiments.cost.accelerator.rows import FULL, ROWS, SMALL
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.runs import signals
from nplm_jax.training.chips import peak_flops
from nplm_jax.training.training_run import out_of_memory_as_bad_input
from nplm_jax.utils.errors import BadInput, first_line, require

MODULE = 'experiments.cost.accelerator.race'
HERE = pathlib.Path(__file__).parent
RESULTS, REHEARSAL = HERE / 'results' / 'race', pathlib.Path('runs/race-rehearsal')
ABOUT = 'about'  # a child process that measures nothing
LIMIT = 240.0  # maximum seconds of a row
QUICK = {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}  # a rehearsal spends more time compiling than training
HEADER = ['row', 'batch', 'words/s', 'range', 'Tflop/s', 'of peak', 'ratio', 'remark']


def about() -> dict[str, Any]:
    """Starts JAX. Returns the device, the versions and the commit recorded with every row."""
    device, found = jax.devices()[0], provenance.provenance()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found['versions']['torch'] = importlib.metadata.version('torch')
    found['versions']['platform'] = ' '.join(device.client.platform_version.split())
    return {'platform': device.platform, 'kind': device.device_kind, 'peak': peak_flops([device.device_kind]), **found}


def measure_row(name: str, rehearse: bool) -> dict[str, Any]:
    """Measures a row in this process. Raises BadInput, with a one-line message, for every failure."""
    try:
        with out_of_memory_as_bad_input():
            return about() if name == ABOUT else ROWS[name](SMALL if rehearse else FULL)
    except (BadInput, ModuleNotFoundError):
        raise
    except Exception as error:  # the user cannot fix a failure in a compiler or library, so the race continues
        raise BadInput(type(error).__name__, first_line(error)) from error


def run_child(name: str, rehearse: bool, seconds: float) -> dict[str, Any]:
    """Measures a row in a separate process, which isolates its memory and its failures.

    Returns:
        The measurements, or `failed`, the reason for a failure.

    Raises:
        subprocess.TimeoutExpired: The row took longer than `seconds`.
    """
    command = [sys.executable, '-m', MODULE, f'--child={name}', *(['--rehearse'] if rehearse else [])]
    environment = {**os.environ, **(QUICK if rehearse else {})}
    with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+', errors='replace') as err:
        child = subprocess.Popen(
            command, cwd=HERE.parents[2], env=environment, stdout=out, stderr=err, start_new_session=True
        )
        try:
            code = child.wait(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # including the processes of torch.compile
            child.wait()
        for file in (out, err):
            file.seek(0)
        if code < 0:
            return {'failed': f'killed by {signal.Signals(-code).name}'}
        if code:
            said = [f'ended with exit code {code}', *err.read().splitlines()][-1]
            return {'failed': said.removeprefix(f'python -m {MODULE}: ')}
        return json.loads(out.read().splitlines()[-1])


def order(folder: pathlib.Path, names: Sequence[str]) -> list[str]:
    """Returns the rows to measure: first the missing rows and then the failed rows, each in the given order."""
    measured = read(folder)
    missing = [name for name in names if name not in measured]
    return missing + [name for name in names if 'failed' in measured.get(name, {})]


def read(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the measured rows of a device, starting with the most important row."""
    return {name: results.read(folder, name) for name in ROWS if (folder / f'{name}.json').exists()}


def race(root: pathlib.Path, minutes: float, rehearse: bool, names: Sequence[str] = tuple(ROWS)) -> None:
    """Measures rows until all of them have been written or the time is up.

    Args:
        root: The folder of the devices' folders.
        minutes: The time after which no further row is started.
        rehearse: Whether to measure all rows at a small size, on any device.
        names: The rows, most important first.

    Raises:
        BadInput: JAX does not start, or there is no accelerator and this is not a rehearsal.
    """
    signals.raise_on_sigterm()  # otherwise, a row would continue after the race
    deadline = time.monotonic() + 60 * minutes
    try:
        facts = run_child(ABOUT, rehearse, LIMIT)
    except subprocess.TimeoutExpired:
        facts = {'failed': f'did not start within {LIMIT:.0f} s'}
    require('failed' not in facts, 'JAX', facts.get('failed'), 'must be able to start')
    allowed = 'must be an accelerator; use --rehearse to measure all rows at a small size on any device'
    require(rehearse or facts['platform'] != 'cpu', 'platform', facts['platform'], allowed)
    facts['command'] = shlex.join(['python', '-m', MODULE, *sys.argv[1:]])
    folder = root / re.sub(r'\W+', '-', facts['kind']).strip('-')
    folder.mkdir(parents=True, exist_ok=True)
    for name in order(folder, names):
        started = time.monotonic()
        if (left := deadline - started) <= 0:
            break
        try:
            measured = run_child(name, rehearse, min(left, LIMIT))
        except subprocess.TimeoutExpired:
            if left < LIMIT:  # the race is out of time, not the row
                break
            measured = {'failed': f'took longer than {LIMIT:.0f} s'}
        row = {'row': name, 'seconds': round(time.monotonic() - started, 1), **measured, **facts}
        results.write(folder / f'{name}.json', row)
        print(f'{name}: {measured.get("failed", "measured")} ({row["seconds"]} s)', file=sys.stderr)
    if left := len(set(names) - read(folder).keys()):
        print(f'{left} of {len(names)} rows are left; run the same command again', file=sys.stderr)


def cells(name: str, row: Mapping[str, Any]) -> list[str]:
    """Returns a row of the table."""
    if not row or 'failed' in row:
        return [name, *['-'] * (len(HEADER) - 2), row.get('failed', 'not measured')]
    if 'target' in row:
        last = row['validations'][-1]
        end = f'{row["target"]:g} not reached' if row['seconds_to_target'] is None else f'{row["target"]:g} reached'
        remark = f'{end}: {last["perplexity"]:g} after {last["seconds"]:g} s and {last["update"]:,} updates'
        return [name, f'{row["batch"]:,}', *['-'] * (len(HEADER) - 3), remark]
    ours, *others = (np.array(rates) for rates in row['words_per_second'].values())
    flops = np.median(ours) * row['flops_per_word']
    return [
        name,
        f'{row["batch"]:,}',
        f'{np.median(ours):,.0f}',
        f'{ours.min():,}-{ours.max():,}',
        f'{flops / 1e12:,.2f}',
        f'{flops / row["peak"]:.1%}' if row['peak'] else '-',
        f'{np.median(ours / others[0]):.2f}' if others else '-',
        ' against '.join(row['words_per_second']) if others else '',
    ]


def make_table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns one line per row: the median words per second, and the median of the rounds' ratios."""
    table = markdown_table(HEADER, [cells(name, measured.get(name, {})) for name in ROWS])
    commits = sorted({row['commit'] for row in measured.values()})
    devices = sorted({row['device'] for row in measured.values()})
    about = f'The rows were measured on {", ".join(devices)} at commit {", ".join(commits)}.'
    return f'{table}\n\n{about}' if measured else table


def draw(measured: Mapping[str, Mapping[str, Mapping[str, Any]]], path: pathlib.Path) -> None:
    """Draws the share of peak FLOP/s by batch size, for each device and each network that is timed separately."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (the tables do without)

    figure = Figure(figsize=(6, 4), layout='constrained')
    axes, lines = figure.subplots(), collections.defaultdict[str, list[tuple[int, float]]](list)
    for device, rows in measured.items():
        for name, row in rows.items():
            if row.get('peak') and row.get('words_per_second', {}).keys() == {'ours'}:
                share = np.median(row['words_per_second']['ours']) * row['flops_per_word'] / row['peak']
                lines[f'{name.rpartition("-")[0]}, {device}'].append((row['batch'], 100 * share))
    for label, points in lines.items():
        axes.semilogx(*zip(*sorted(points)), base=2, marker='o', label=label)
    batches = sorted({batch for points in lines.values() for batch, _ in points})
    axes.set(xlabel='words of an update', ylabel='% of the bfloat16 peak', ylim=(0, None), xticks=batches)
    axes.set_xticklabels(f'{batch:,}' for batch in batches)
    axes.grid(alpha=0.3)
    axes.legend(fontsize='small')
    save_figure(figure, path)


def show(flags: study.Flags) -> str:
    """Returns the table of each device, or the list of rows if no row was measured."""
    root = root_of(flags)
    folders = sorted(path for path in root.glob('*') if path.is_dir())
    if flags.figure:
        draw({path.name: read(path) for path in folders}, (HERE if root == RESULTS else root) / 'race.png')
    return '\n\n'.join(map(make_table, map(read, folders))) or make_table({})


def root_of(flags: study.Flags) -> pathlib.Path:
    """Returns the folder that contains one results folder per device."""
    return flags.output or (REHEARSAL if flags.rehearse else RESULTS)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    minutes = 'time after which no row is started [min]; default: 25'
    parser.add_argument('--minutes', type=study.positive(float), default=25.0, metavar='N', help=minutes)
    parser.add_switch('--rehearse', 'measure all rows at a small size, on any device')
    parser.add_names('--rows', ROWS, 'rows to measure')
    parser.add_switch('--figure', 'also draw race.png')
    parser.add_output_path(help='folder to write the results to; default: see above', folder=True)
    parser.add_quick(rows=['mlp1-512', 'mlp9-4096-plain_jax'], rehearse=True)
    parser.add_argument('--child', choices=[ABOUT, *ROWS], help=argparse.SUPPRESS)


def main(flags: study.Flags) -> None:
    """Runs the race and prints the table. In a child process, measures one row and prints it as JSON."""
    if flags.child:
        print(json.dumps(measure_row(flags.child, flags.rehearse)))
        return
    if flags.quick:  # in a new folder, every row is missing
        with tempfile.TemporaryDirectory() as folder:
            race(pathlib.Path(folder), flags.minutes, flags.rehearse, flags.rows)
            (measured,) = map(read, pathlib.Path(folder).iterdir())
        for name, row in measured.items():
            require('failed' not in row, name, row.get('failed'), 'must complete without an error')
        return
    race(root_of(flags), flags.minutes, flags.rehearse, flags.rows)
    print(study.shown(show, flags))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
