"""Monitors the memory, open files and disk space of a long training run that saves every few seconds.

taskset -c 1 nice -n 10 python -m tools.faults --soak=30
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from experiments import results
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from tools.faults import runs

FILE = pathlib.Path(__file__).with_name('soak.json')
SAVE_EVERY = 400
FLAGS = (
    '--config.train.epochs=1000000', '--config.train.patience=1000000', f'--config.train.evaluate_every={SAVE_EVERY}',
    f'--config.train.checkpoint_every={SAVE_EVERY}', '--config.train.log_every=200',
    '--config.train.steps_per_execution=50', '--config.train.batch_size=256', '--config.model.m=60',
    '--config.model.h=200', '--config.optimizer.learning_rate=0.01',
)  # fmt: skip


def measure(minutes: float) -> None:
    """Trains for the given time, measures every ten seconds, stops the training with SIGTERM and writes soak.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        process = runs.start(folder / 'run', (*runs.text(folder), *FLAGS))
        samples, seen, began = [], set(), None
        while process.poll() is None and (began is None or time.monotonic() - began < 60 * minutes):
            time.sleep(1)
            seen |= set(runs.saved_steps(folder / 'run'))
            if began is None and len(seen) >= 3:  # compiled, evaluated and saved at least once
                began = time.monotonic()
            if began is not None and time.monotonic() - began >= 10 * len(samples):
                samples.append({'seconds': round(time.monotonic() - began), **_look(process.pid, folder / 'run')})
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=300)
        results.write(FILE, _summary(samples, folder / 'run', process.returncode, stderr, time.monotonic() - asked))


def make_table() -> str:
    """Returns the medians over a minute at the start, in the middle and at the end of the committed measurement."""
    parts = json.loads(FILE.read_text())['medians_of_a_minute']
    rows = [
        [
            part, round(medians['seconds'] / 60), medians['resident_kilobytes'] / 1024, int(medians['open_files']),
            int(medians['checkpoint_kilobytes']), int(medians['other_kilobytes']),
        ]
        for part, medians in parts.items()
    ]  # fmt: skip
    header = ['', 'minute', 'resident MB', 'open files', 'checkpoints on disk, KB', 'other files, KB']
    return markdown_table(header, rows)


def _summary(samples, folder, code, stderr, seconds):
    rows = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    updates = rows[-1]['step']
    parts = {'start': samples[:6], 'middle': samples[len(samples) // 2 - 3 :][:6], 'end': samples[-6:]}
    return {
        'minutes': round(samples[-1]['seconds'] / 60, 1),
        'updates': updates,
        'checkpoints': updates // SAVE_EVERY,
        'seconds_between_checkpoints': round((rows[-1]['seconds'] - rows[0]['seconds']) / (updates / SAVE_EVERY), 2),
        'metrics_lines': len(rows),
        'medians_of_a_minute': {
            part: {key: statistics.median(row[key] for row in rows_of_part) for key in samples[0]}
            for part, rows_of_part in parts.items()
        },
        'exit_code': code,
        'said': runs.said(stderr, folder),
        'seconds_from_sigterm_to_exit': round(seconds, 2),
        **provenance.provenance(),
        'samples': samples[:: max(1, len(samples) // 60)],
    }


def _look(pid: int, folder: pathlib.Path) -> dict[str, int]:
    """Returns the resident memory, open files and threads, and the sizes of checkpoints and all other files in KB."""
    status = dict(line.split(':', 1) for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines())
    checkpoints, everything = _kilobytes(folder / 'checkpoints'), _kilobytes(folder)
    return {
        'resident_kilobytes': int(status['VmRSS'].split()[0]),
        'open_files': len(os.listdir(f'/proc/{pid}/fd')),
        'threads': int(status['Threads']),
        'checkpoint_kilobytes': checkpoints,
        'other_kilobytes': everything - checkpoints,
    }


def _kilobytes(folder: pathlib.Path) -> int:
    return int(subprocess.run(['du', '-sk', folder], capture_output=True, text=True, check=False).stdout.split()[0])
