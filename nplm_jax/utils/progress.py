"""Progress of long work: a bar on a terminal, a line a minute in a log."""

import sys
import time
from typing import Any, TextIO

import tqdm

INTERVAL = 60.0  # seconds between two lines
_LINE = '{desc}{n_fmt} of {total_fmt}{unit} ({percentage:.0f}%), {remaining} left'


class _Lines:
    """A log that takes one state of a bar a minute, as a line."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._written = file, time.monotonic()

    def write(self, text: str) -> None:
        if text.strip() and time.monotonic() >= self._written + INTERVAL:
            self._written = time.monotonic()
            print(text.strip(), file=self._file)  # without the carriage return

    def flush(self) -> None:
        self._file.flush()


def progress_bar(
    total: int | None, description: str, unit: str, initial: int = 0, delay: float = 3, log: TextIO | None = None
) -> tqdm.tqdm:
    """Returns a bar on stderr if that is a terminal; otherwise one that writes a line a minute.

    Args:
        total: The units of all the work; None if it is unknown.
        description: The name of the work.
        unit: The unit, after a space.
        initial: The units that were done before.
        delay: The seconds after which a terminal shows the bar.
        log: The file of the lines; None for stderr.
    """
    style: dict[str, Any] = {'dynamic_ncols': True, 'delay': delay, 'smoothing': 0.05}
    if not sys.stderr.isatty():
        line = _LINE if total else '{desc}{n_fmt}{unit}'
        style = {'file': _Lines(log or sys.stderr), 'bar_format': line, 'miniters': 1, 'smoothing': 0}
    return tqdm.tqdm(total=total, desc=f'{description}: ', unit=unit, unit_scale=True, initial=initial, **style)


def write(line: str) -> None:
    """Writes a line to stdout at once, above the bar of a terminal."""
    tqdm.tqdm.write(line)
    sys.stdout.flush()
