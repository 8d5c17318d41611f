"""Reports training progress in metrics.jsonl, TensorBoard events and a progress bar. Suggests next commands.

Dims: S updates per chunk.
"""

import contextlib
import json
import pathlib
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

from nplm_jax.config import plugins
from nplm_jax.inference.perplexity import nll_to_perplexity
from nplm_jax.reporting.catalog import INFINITE, METRICS, NUMBER, RESULTS, is_finished, read_run
from nplm_jax.reporting.shell import command_line, nplm_command
from nplm_jax.reporting.text import to_json
from nplm_jax.training import reporter
from nplm_jax.training.flops import Cost
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.progress import progress_bar, write
from nplm_jax.utils.untrusted import ANY_KEY, decode_lines, matches_schema, parse_json, read_bytes

_ROW = {ANY_KEY: INFINITE, 'step': (int,), 'epoch': NUMBER, 'seconds': NUMBER}  # schema of metrics.jsonl


class Reporter(reporter.Reporter):
    """A `training.reporter.Reporter` that writes metrics.jsonl and TensorBoard events and shows a progress bar.

    When a run is resumed, the lines of metrics.jsonl after its checkpoint are deleted, so each update is reported only
    once. The TensorBoard events are rewritten from the remaining lines. The first training perplexity after resuming
    covers only the updates since the checkpoint.
    """

    def __init__(self, folder: pathlib.Path, name: str = '') -> None:
        """Creates a reporter.

        Args:
            folder: The run folder.
            name: The label of the output, which distinguishes runs that are trained together. Empty for a single run.
        """
        self._folder = folder
        self._label = name and f'{name}: '
        self._path = folder / METRICS
        self._nll: list[np.ndarray] = []  # losses since the last line of metrics.jsonl
        self._sum_nll, self._num_nll = 0.0, 0  # losses since the last validation

    def start(
        self, progress: Progress, schedule: Schedule, batch_size: int, cost: Cost, sampled_words: int = 0
    ) -> None:
        """Opens the files and the progress bar. See `training.reporter.Reporter`."""
        self._schedule, self._batch_size, self._cost = schedule, batch_size, cost
        self._sample = f' on {sampled_words:,} sampled words' if sampled_words else ''
        was_started = self._path.exists()
        rows = [row for row in read_metrics(self._path) if row['step'] <= progress.step]
        self._validated = max((row['step'] for row in rows if 'valid_perplexity' in row), default=0)
        write_atomically(self._path, ''.join(json.dumps(row) + '\n' for row in rows))
        self._file = self._path.open('a', encoding='utf-8')
        self._events = _replace_events(self._folder / 'tensorboard')
        started = time.time() - progress.seconds
        for row in rows:
            self._add_events(row, started + row['seconds'])
        if progress.step:
            then = '; training is finished' if progress.finished else f' of {schedule.total_steps:,}'
            resumed = f'resumed at epoch {self._epoch(progress):.2f}, after update {progress.step:,}{then}'
            print(f'{self._label}{resumed}', flush=True)
        elif was_started:
            print(f'{self._label}training restarts from the beginning, because no checkpoint was saved', flush=True)
        total, initial = schedule.total_steps * batch_size, progress.step * batch_size
        description = f'{self._label}epoch {self._epoch(progress):.2f}'
        self._bar = progress_bar(total, description, ' words', initial, delay=0, log=sys.stdout)

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Updates the progress bar, and writes a line of metrics.jsonl every `train.log_every` updates.

        Args:
            progress: The progress after a chunk of updates.
            nll_S: The mean NLL of each batch in the chunk, in nats per word.
        """
        self._nll.append(nll_S)
        self._sum_nll, self._num_nll = self._sum_nll + float(nll_S.sum(dtype=np.float64)), self._num_nll + nll_S.size
        train = nll_to_perplexity(float(np.concatenate(self._nll).mean()))
        rate = progress.step * self._batch_size / progress.train_seconds
        epoch = f'{self._label}epoch {self._epoch(progress):.2f}'
        description = f'{epoch}, train perplexity {train:.1f}, {self._cost.describe(rate)}'
        self._bar.set_description(description, refresh=False)
        self._bar.update(nll_S.size * self._batch_size)
        if self._schedule.is_due(self._schedule.log_every, progress.step - nll_S.size, progress.step):
            self._write(progress, train_perplexity=train, **self._cost.rates(rate))
            self._nll.clear()

    def validated(self, progress: Progress) -> None:
        """Writes and shows the validation perplexity. Also shows the training perplexity since the last validation.

        If the run was resumed after the last validation, the training perplexity is omitted.
        """
        valid, train = nll_to_perplexity(progress.valid_nll), ''
        if self._num_nll == progress.step - self._validated:
            train = f'train perplexity {nll_to_perplexity(self._sum_nll / self._num_nll):.2f}, '
        self._sum_nll, self._num_nll, self._validated = 0.0, 0, progress.step
        self._write(progress, valid_perplexity=valid)
        is_best = progress.best_step == progress.step
        perplexity = f'{train}valid perplexity {valid:.2f}{self._sample}'
        note = 'best so far' if is_best else f'best was {nll_to_perplexity(progress.best_valid_nll):.2f}'
        write(f'{self._label}epoch {self._epoch(progress):.2f}: {perplexity} ({note}), after {progress.seconds:.0f} s')
        if progress.finished and progress.step < self._schedule.total_steps:
            since = f'{progress.evaluations_since_best} validations (train.patience)'
            write(f'{self._label}stopped: the valid perplexity has not improved in {since}')

    def sampled(self, text: str) -> None:
        """Shows a text sample on one line."""
        write(f'{self._label}sample: {" ".join(text.split())}')

    def postprocessed(self, what: str, before: float, after: float) -> None:
        """Shows the validation perplexity before and after post-processing. See `training.reporter`."""
        change = ' to '.join(f'{nll_to_perplexity(nll):.2f}' for nll in (before, after))
        changed = f'{what[0].upper()}{what[1:]} changed the valid perplexity from {change}{self._sample}'
        write(f'{self._label}{changed}')

    def close(self) -> None:
        """Flushes and closes all files. If the disk is full, closes all of them before raising the error."""
        with contextlib.ExitStack() as stack:
            for name in ('_events', '_file', '_bar'):
                if hasattr(self, name):
                    stack.callback(getattr(self, name).close)

    def _epoch(self, progress: Progress) -> float:
        return progress.step / self._schedule.steps_per_epoch

    def _write(self, progress: Progress, **values: float) -> None:
        row = {
            'step': progress.step,
            'epoch': round(self._epoch(progress), 4),
            'seconds': round(progress.seconds, 2),
            **values,
        }
        self._file.write(to_json(row) + '\n')
        self._file.flush()
        self._add_events(row, time.time())
        self._events.flush()

    def _add_events(self, row: Mapping[str, Any], wall_time: float) -> None:
        for name in row.keys() - {'step', 'epoch', 'seconds'}:
            if row[name] is not None:
                event = Event(wall_time=wall_time, step=row['step'], summary=scalar(name, row[name]))
                self._events.write(event.SerializeToString())


def _replace_events(folder: pathlib.Path) -> RecordWriter:
    """Deletes the event files of a folder and opens a new one.

    The events are written by RecordWriter instead of tensorboardX's SummaryWriter, whose thread dies if the disk is
    full.
    """
    folder.mkdir(exist_ok=True)
    for old in folder.glob('events.*'):
        old.unlink()
    folder = folder.absolute()  # tensorboardX treats paths starting with `gs:` or `s3:` as buckets
    events = RecordWriter(str(folder / f'events.out.tfevents.{time.time():.0f}.{socket.gethostname()}'))
    events.write(Event(wall_time=time.time(), file_version='brain.Event:2').SerializeToString())
    return events


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads a metrics.jsonl file. Ignores an incomplete last line, which a killed process may leave behind.

    Args:
        path: The file.

    Returns:
        One dictionary per line. If the file does not exist, the list is empty.

    Raises:
        BadInput: A line is damaged. The message gives the number of the line.
    """
    if not path.exists():
        return []
    data = read_bytes(str(path), path)
    rows = []
    for number, line in decode_lines(path, data[: data.rfind(b'\n') + 1]):
        row = parse_json(path, line, number)
        if not matches_schema(row, _ROW):
            raise BadInput(f'{path}:{number}', 'must contain numbers, including step, epoch and seconds')
        rows.append(row)
    return rows


def next_steps(folder: pathlib.Path, modules: Sequence[str] = ()) -> str:
    """Returns the text printed after training: the path of the run's figure, and commands that use its model.

    Args:
        folder: The folder of the run.
        modules: The plug-in modules that the commands require.
    """
    nplm, flags = nplm_command(), plugins.flags(modules)
    lines = [
        command_line([*nplm, 'generate', folder, *flags]),
        f'{command_line([*nplm, "score", folder, *flags])} < text.txt',
    ]
    if other := _last_finished_beside(folder):
        lines.append(command_line([*nplm, 'compare', folder, other]))
    lines.append(f'{command_line([*nplm, "--help"])}  # lists all commands')
    figure = folder / 'learning_curve.png'
    where = [f'Figure: {figure}'] if figure.exists() else []
    return '\n'.join([*where, 'Next steps:', *(f'  {line}' for line in lines)])


def _last_finished_beside(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the most recently finished comparable run in the same parent folder, or None."""
    others = [path for path in folder.parent.iterdir() if path.name != folder.name and is_finished(path)]
    others = [path for path in others if _have_one_text(folder, path)]
    return max(others, key=lambda path: (path / RESULTS).stat().st_mtime, default=None)


def _have_one_text(folder: pathlib.Path, other: pathlib.Path) -> bool:
    """Returns whether the perplexities or the bits per byte of two runs are comparable."""
    try:
        runs = [read_run(path) for path in (folder, other)]
    except BadInput:  # a damaged run
        return False
    return runs[0].text == runs[1].text or runs[0].has_test_text_of(runs[1])
