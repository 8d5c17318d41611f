"""The flag --scheduler: a cluster that does work large enough to be split into tasks. Imports no JAX."""

import contextlib
import pkgutil
from collections.abc import Iterator

from nplm_jax.cli import commands
from nplm_jax.executors import workers
from nplm_jax.utils.errors import BadInput


@contextlib.contextmanager
def use(address: str | None) -> Iterator[None]:
    """Lets the workers of a scheduler do large work.

    An app declares its class of clusters as CLUSTER = 'MODULE:CLASS'. It is called with the address.

    Args:
        address: `tcp://HOST:PORT`; empty or None for this machine.

    Raises:
        BadInput: The scheduler does not answer, or no app declares a class of clusters.
    """
    if not address:
        yield
        return
    for app, path in commands.declared('CLUSTER').items():
        with pkgutil.resolve_name(f'{app}.{path}')(address) as cluster, workers.use(cluster):
            yield
            return
    raise BadInput('--scheduler', 'needs the app nplm_jax.apps.cluster', value=address)
