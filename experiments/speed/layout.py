"""Which way round should the output layer hold its scores? Measures both, alternating, in one run.

    python -m experiments.speed.layout [--batch=128] [--hidden=100] [--vocabulary=16384]

Prints examples a second of loss and gradients with scores examples x words and words x examples, and the ratio.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

_BATCH = flags.DEFINE_integer('batch', 128, 'Examples an update.')
_HIDDEN = flags.DEFINE_integer('hidden', 100, 'Inputs of the output layer.')
_VOCABULARY = flags.DEFINE_integer('vocabulary', 16_384, '|V|.')
_ROUNDS = flags.DEFINE_integer('rounds', 30, 'Alternations.')


def loss(axis: int):
    """Mean NLL of the output layer with the words along `axis` of the scores."""

    def run(a_BxK, U_VxK, targets_B):
        y = U_VxK @ a_BxK.T if axis == 0 else a_BxK @ U_VxK.T
        picked = jnp.take_along_axis(y, jnp.expand_dims(targets_B, axis), axis)
        return jnp.mean(jax.nn.logsumexp(y, axis=axis) - picked.squeeze(axis))

    return jax.jit(jax.value_and_grad(run, (0, 1)))


def main(_) -> None:
    """Races the two forms."""
    B, K, V = _BATCH.value, _HIDDEN.value, _VOCABULARY.value
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = (
        jax.random.normal(keys[0], (B, K)),
        0.1 * jax.random.normal(keys[1], (V, K)),
        jax.random.randint(keys[2], (B,), 0, V),
    )
    forms = {'examples x words': loss(1), 'words x examples': loss(0)}
    seconds = {name: [] for name in forms}
    for form in forms.values():
        jax.block_until_ready(form(*inputs))
    for _ in range(_ROUNDS.value):
        for name, form in forms.items():
            started = time.perf_counter()
            jax.block_until_ready(form(*inputs))
            seconds[name].append(time.perf_counter() - started)
    rates = {name: B / float(np.median(s)) for name, s in seconds.items()}
    for name, rate in rates.items():
        print(f'{name}: {rate:,.0f} examples a second')
    print(f'ratio {rates["words x examples"] / rates["examples x words"]:.2f} (B={B}, K={K}, |V|={V})')


if __name__ == '__main__':
    app.run(main)
