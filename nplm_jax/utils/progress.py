"""The progress of long work: a bar on a terminal; elsewhere, as in a log file, a line a minute."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

import tqdm

INTERVAL = 60.0  # seconds between two lines


class ProgressBar:
    """A bar on stderr where that is a terminal. A line a minute where stderr or the file of the lines is none."""

    def __init__(
        self,
        total: int | None,
        description: str,
        unit: str,
        initial: int = 0,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        """Shows the bar.

        Args:
            total: The units of all the work; None if it is unknown.
            description: What is done.
            unit: The unit, after a blank.
            initial: The units that were done before.
            file: Where lines are written; None for stderr.
            clock: Returns the seconds, for the lines.
            **options: Further arguments of tqdm.
        """
        self._bar = tqdm.tqdm(
            total=total, initial=initial, desc=description, unit=unit, unit_scale=True, dynamic_ncols=True,
            disable=None, **options,
        )  # fmt: skip
        self._file = file or sys.stderr
        self._writes_lines = not (sys.stderr.isatty() and self._file.isatty())
        self._description, self._total, self._unit = description, total, unit
        self._initial = self._done = initial
        self._clock = clock
        self._started = self._last_line = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def line_is_due(self) -> bool:
        """Whether the next update writes a line."""
        return self._writes_lines and self._clock() - self._last_line >= INTERVAL

    def set_description(self, description: str) -> None:
        """Sets what is done."""
        self._description = description
        self._bar.set_description(description)

    def update(self, units: int) -> None:
        """Adds units that are done."""
        self._bar.update(units)
        self._done += units
        if self.line_is_due:
            self._last_line = self._clock()
            self.write(self._line())

    def write(self, line: str) -> None:
        """Writes a line at once, above the bar."""
        self._bar.write(line, file=self._file)
        self._file.flush()

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()

    def _line(self) -> str:
        of_total, seconds = '', self._clock() - self._started
        if self._total:
            remaining = seconds / max(self._done - self._initial, 1) * (self._total - self._done)
            of_total = f' of {self._total:,}{self._unit} ({self._done / self._total:.0%}), {about(remaining)} left'
        return f'{self._description}: {self._done:,}{of_total or self._unit}'


def progress_bar(total: int, description: str, unit: str) -> ProgressBar:
    """Returns a bar that a terminal shows only for work of more than three seconds."""
    return ProgressBar(total, description, unit, delay=3)


def about(seconds: float) -> str:
    """Returns a duration in words.

    Examples:
        >>> about(200)
        'about 3 minutes'
    """
    return f'about {seconds / 60:.0f} minutes' if seconds > 90 else f'about {seconds:.0f} seconds'
