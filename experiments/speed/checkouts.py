"""Processes that train by the code of a checkout of this repository, for commits.py and history.py."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).parent


class Checkout:
    """A process that trains by the code of one checkout."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        """Starts it; it ends with the stack."""
        self._folder = folder
        environment = {k: v for k, v in os.environ.items() if k != 'JAX_COMPILATION_CACHE_DIR'}
        command = [sys.executable, '-P', str(HERE / 'commits_child.py')]
        environment['PYTHONPATH'] = str(folder)
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
        process = stack.enter_context(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
        self._input, self._output = process.stdin, process.stdout
        stack.callback(self._input.close)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Returns its answer to one command. Raises: SystemExit when it ended without one."""
        print(json.dumps(command), file=self._input, flush=True)
        answer = self._output.readline()
        if not answer:
            sys.exit(f'the process of {self._folder} ended without an answer')
        return json.loads(answer)


def commit_of(folder: pathlib.Path) -> str:
    """Returns the commit that is checked out in a folder."""
    command = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
