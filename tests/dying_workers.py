"""Starts Dask workers that are killed while they work."""

import contextlib
import os
import signal
import time

import pytest

distributed = pytest.importorskip('distributed', reason='pip install "nplm-jax[cluster]"')


def kill_workers(cluster, killed, number, pause):
    """Kills `number` workers, one after another, and appends their process ids to the list `killed`."""
    with distributed.Client(cluster._client.scheduler.address, set_as_default=False) as client:
        while len(killed) < number:
            with contextlib.suppress(Exception):  # a dying worker cannot answer
                found = client.sync(client._run, os.getpid, on_error='ignore', callback_timeout=10)
                pid = min(found.values())
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(pause)
