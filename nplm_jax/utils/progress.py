"""Shows progress bars on terminals, and prints one progress line per minute to logs."""

import sys
import time
from typing import Any, TextIO

import tqdm

INTERVAL = 60.0  # seconds between two lines
_LINE = '{desc}{n_fmt} of {total_fmt}{unit} ({percentage:.0f}%), {remaining} left'


class _Lines:
    """A text stream that prints a progress bar's output, at most one line per minute."""

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
    """Returns a progress bar. If stderr is not a terminal, the bar prints one line per minute instead.

    Args:
        total: The total number of units, or None if unknown.
        description: The name of the work.
        unit: The unit, with a leading space.
        initial: The number of units that are already done.
        delay: The time before the bar appears on a terminal, in seconds.
        log: The file for progress lines, or None for stderr.
    """
    style: dict[str, Any] = {'dynamic_ncols': True, 'delay': delay, 'smoothing': 0.05}
    if not sys.stderr.isatty():
        line = _LINE if total else '{desc}{n_fmt}{unit}'
        style = {'file': _Lines(log or sys.stderr), 'bar_format': line, 'miniters': 1, 'smoothing': 0}
    return tqdm.tqdm(total=total, desc=f'{description}: ', unit=unit, unit_scale=True, initial=initial, **style)


def write(line: str) -> None:
    """Writes a line to stdout, above any progress bar, and flushes stdout."""
    tqdm.tqdm.write(line)
    sys.stdout.flush()
