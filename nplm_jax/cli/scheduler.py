"""The flag --scheduler: a cluster that does the work that is large enough to be cut into tasks. Imports no JAX."""

import contextlib
from collections.abc import Iterator

from nplm_jax.executors import workers


@contextlib.contextmanager
def use(address: str | None) -> Iterator[None]:
    """Lets the workers of a scheduler do large work. Raises: BadInput unless it answers at `tcp://HOST:PORT`."""
    if not address:
        yield
        return
    from nplm_jax.executors.dask_cluster import DaskCluster

    with DaskCluster(address) as cluster, workers.use(cluster):
        yield
