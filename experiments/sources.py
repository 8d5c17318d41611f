"""The origin of a study's results: the command, commit, versions and device of this process and of the runs."""

import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from nplm_jax.reporting import provenance


def of_module(module: str) -> dict[str, Any]:
    """Returns `provenance` and the command of this process, `python -m MODULE` with arguments."""
    return {'command': shlex.join(['python', '-m', module, *sys.argv[1:]]), **provenance.provenance()}


def of_runs(recorded: Iterable[Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Returns the origins of the runs' results, which are recorded in a result that depends on these runs.

    A note or an audit then also covers runs that were trained with an excluded jaxlib, with uncommitted changes, with
    earlier settings or while other programs ran, and runs whose versions are unknown. It also covers the runs on which
    these runs depend.
    """
    keys = 'name', 'seed', 'commit', 'load', 'command', 'family', 'settings', 'origins', 'trained'
    return [
        {**{key: found[key] for key in keys if key in found}, 'versions': found.get('versions', {})}
        for found in recorded
        if found
    ]
