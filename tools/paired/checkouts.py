"""The processes that race.py starts. Each trains with the code of one checkout of this repository."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

HERE = pathlib.Path(__file__).parent


class Checkout:
    """A process that trains with the code of one checkout."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        """Starts the process. It ends when the exit stack is closed."""
        self._folder = folder
        environment = {k: v for k, v in os.environ.items() if k != 'JAX_COMPILATION_CACHE_DIR'}
        command = [sys.executable, '-P', str(HERE / 'child.py')]
        environment['PYTHONPATH'] = str(folder)
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
        process = stack.enter_context(subprocess.Popen(command, cwd=folder, env=environment, **pipes))
        self._input, self._output = process.stdin, process.stdout
        stack.callback(self._input.close)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Returns the answer to a command. Raises SystemExit if the process ended without an answer."""
        print(json.dumps(command), file=self._input, flush=True)
        answer = self._output.readline()
        if not answer:
            sys.exit(f'the process of {self._folder} ended before it returned a result')
        return json.loads(answer)


def find(flag: str, folder: str) -> pathlib.Path:
    """Returns the folder that a flag names. Raises BadInput if the folder is not a checkout."""
    path = expand(flag, folder).resolve()
    is_checkout = bool(folder) and (path / 'nplm_jax').is_dir()
    require(is_checkout, flag, folder, 'must be a folder with a checkout of this repository')
    return path


def commit_of(folder: pathlib.Path) -> str:
    """Returns the commit that is checked out in a folder."""
    return git(folder, 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*')


def git(folder: pathlib.Path, *words: str) -> str:
    """Returns the output of git in a folder. Raises BadInput if git fails."""
    done = subprocess.run(['git', *words], cwd=folder, capture_output=True, text=True)
    require(done.returncode == 0, 'folder', str(folder), f'git {words[0]} failed ({done.stderr.strip()})')
    return done.stdout.strip()
