"""Implements --scheduler, which runs large computations on a cluster. This module does not import JAX."""

import contextlib
import pkgutil
from collections.abc import Iterator

from nplm_jax.cli import commands
from nplm_jax.executors import workers
from nplm_jax.utils.errors import BadInput


@contextlib.contextmanager
def use(address: str | None) -> Iterator[None]:
    """Runs large computations within the block on the workers of a scheduler.

    An app declares a cluster class as `CLUSTER = 'MODULE:CLASS'`. The class is instantiated with the address.

    Args:
        address: The address of the scheduler, `tcp://HOST:PORT`. '' and None stand for this machine.

    Raises:
        BadInput: The scheduler does not respond, or no app declares a cluster class.
    """
    if not address:
        yield
        return
    for app, path in commands.declared('CLUSTER').items():
        with pkgutil.resolve_name(f'{app}.{path}')(address) as cluster, workers.use(cluster):
            yield
            return
    raise BadInput('--scheduler', 'requires the app nplm_jax.apps.cluster', value=address)
