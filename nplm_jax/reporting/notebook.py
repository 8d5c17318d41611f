"""Shows learning curves in notebooks and updates them during training."""

import pathlib
import sys
import time
from typing import Any

from nplm_jax.reporting import figures
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.training.milestones import Progress

_MIN_SECONDS = 2.0  # minimum time between updates of the figure


def is_running() -> bool:
    """Returns whether this process is a notebook kernel."""
    ipython = sys.modules.get('IPython')
    return ipython is not None and hasattr(ipython.get_ipython(), 'kernel')


class Reporter(reporting.Reporter):
    """A `run_reporter.Reporter` that also draws a learning curve and updates it during training."""

    def __init__(self, folder: pathlib.Path, name: str = '') -> None:
        super().__init__(folder, name)
        self._title = name or folder.name
        self._display: Any = None  # IPython's handle, used to update the figure
        self._drawn = -_MIN_SECONDS

    def close(self) -> None:
        """Closes the files and draws the final learning curve."""
        super().close()
        if self._display:
            self._draw()

    def _write(self, progress: Progress, **values: float) -> None:
        super()._write(progress, **values)
        if time.monotonic() - self._drawn >= _MIN_SECONDS:
            self._draw()

    def _draw(self) -> None:
        from IPython import display  # noqa: PLC0415 (available only in notebooks)

        image = display.Image(figures.draw_learning_curve(self._folder, self._title).read_bytes())
        if self._display:
            self._display.update(image)
        else:
            self._display = display.display(image, display_id=True)
        self._drawn = time.monotonic()
