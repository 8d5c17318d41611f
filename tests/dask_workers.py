"""Starts Dask workers on this machine."""

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from nplm_jax.executors import processes


@contextlib.contextmanager
def start_cluster(num_workers: int, folder: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields the address and the scheduler of local workers, which are restarted when they are killed."""
    port = processes.free_port()
    address = f'tcp://127.0.0.1:{port}'
    dask = [sys.executable, '-m', 'dask']
    options = [f'--nworkers={num_workers}', '--nthreads=1', '--memory-limit=0', f'--local-directory={folder}']
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
    scheduler = [*dask, 'scheduler', '--host=127.0.0.1', f'--port={port}', '--no-dashboard']
    with (
        subprocess.Popen(scheduler, **quiet) as scheduler_process,
        subprocess.Popen([*dask, 'worker', address, *options, '--no-dashboard'], **quiet) as nannies,
    ):
        try:
            _wait(address, num_workers)
            yield address, scheduler_process
        finally:
            nannies.terminate()
            scheduler_process.terminate()


def _wait(address: str, num_workers: int) -> None:
    from nplm_jax.apps.cluster.dask_cluster import Client  # noqa: PLC0415 (an optional package)

    try:
        with Client(address, timeout=60, set_as_default=False) as client:
            if num_workers:
                client.wait_for_workers(num_workers, timeout=60)
    except OSError:
        raise RuntimeError(f'{num_workers} workers did not start within a minute') from None
