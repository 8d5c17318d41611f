"""Defines small training states and checkpoint stores for the tests of checkpoints."""

import jax.numpy as jnp
import numpy as np

from nplm_jax.training.checkpoints import CheckpointStore

STATE = {'w': jnp.zeros((3, 2)), 'n': None, 'step': jnp.zeros((), jnp.int32)}


BEST = {'w': jnp.zeros((3, 2))}


def at(step):
    w = jnp.full((3, 2), step, jnp.float32)
    return {'w': w, 'n': None, 'step': jnp.asarray(step, jnp.int32)}, {'w': -w}


def filled(folder, steps=(1, 2, 3)):
    store = CheckpointStore(folder)
    for step in steps:
        store.save(step, *at(step), {'seconds': step / 2, 'best': float('inf')})
    store.close()
    return folder


def restored_step(folder):
    store = CheckpointStore(folder)
    restored = store.restore(STATE, BEST)
    latest = store.latest_step()
    store.close()
    if restored is None:
        return None
    state, best, progress = restored
    step = int(state['step'])
    np.testing.assert_array_equal(state['w'], np.full((3, 2), step))
    np.testing.assert_array_equal(best['w'], np.full((3, 2), -step))
    assert state['w'].dtype == jnp.float32 and state['n'] is None
    assert progress == {'seconds': step / 2, 'best': float('inf')}
    assert latest == step
    return step
