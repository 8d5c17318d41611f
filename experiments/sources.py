"""The origin of a study's results: its command, and the commit, versions and device of this process."""

import shlex
import sys
from typing import Any

from nplm_jax.reporting import provenance


def of_module(module: str) -> dict[str, Any]:
    """Returns `provenance` and the command of this process, `python -m MODULE` with its arguments."""
    return {'command': shlex.join(['python', '-m', module, *sys.argv[1:]]), **provenance.provenance()}
