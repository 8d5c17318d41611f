"""Tests that activations are bfloat16 on accelerators where products are, and float32 on a CPU."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, first_batch, others_nightly, small_settings

from nplm_jax.config.registry import NETWORKS
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import gradients as gradients_lib
from nplm_jax.training.step import execute_steps

STREAM = {'model.direct': False, 'model.n': 4, 'model.h': 6, 'model.heads': 2, 'model.memory': 5}
STREAM |= {'train.batch_size': 8, 'model.bptt_length': 4, 'model.layers': 2, 'model.precision': 'bfloat16'}
FAMILIES = [family for family in NETWORKS if family != 'nplm']  # whose `precision` is that of a key
QUICK = 'residual', 'lstm'


def run_on(platform, changes):
    """Returns a run with the network for a given platform, regardless of the platform on which it is trained."""
    settings = small_settings({**STREAM, **changes})
    run = prepare_run(settings, DATA)
    network = network_from_settings(settings, DATA.vocabulary, platform)
    return run, network


def gradients(network, run):
    state = run.init_state()
    result = gradients_lib.gradients(state.params, network, first_batch(run), state.carry, jax.random.key(0))
    return result.nll, result.view.shared, result.carry


@pytest.mark.parametrize('family', others_nightly(FAMILIES, QUICK))
def test_gradients_are_near_and_parameters_states_and_sums_are_float32(family):
    found = {}
    for platform in ('cpu', 'tpu'):
        run, network = run_on(platform, {'model.family': family})
        assert network.body.activations == {'cpu': 'float32', 'tpu': 'bfloat16'}[platform]
        found[platform] = gradients(network, run)
        assert all(leaf.dtype != jnp.bfloat16 for leaf in jax.tree.leaves(found[platform]))
    cpu, tpu = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found[p][1])]) for p in ('cpu', 'tpu'))
    assert 0 < np.linalg.norm(tpu - cpu) < 0.02 * np.linalg.norm(cpu)
    np.testing.assert_allclose(found['tpu'][0], found['cpu'][0], rtol=2e-3)


@pytest.mark.parametrize('family', others_nightly(FAMILIES, QUICK))
def test_updates_keep_the_types_of_the_state(family):
    run, network = run_on('tpu', {'model.family': family})
    chunk = run.chunk(jax.eval_shape(run.init_state), 0)
    program = dataclasses.replace(run.program, network=network)
    state, _ = jax.eval_shape(lambda s: execute_steps(program, s, *chunk[2:5], chunk.inputs), chunk.state)
    assert jax.tree.map(lambda x: x.dtype, state) == jax.tree.map(lambda x: x.dtype, chunk.state)


@pytest.mark.parametrize('platform,changes', [('cpu', {}), ('tpu', {'model.precision': 'float32'})])
def test_without_bfloat16_products_or_on_a_cpu_nothing_changes(platform, changes):
    _, network = run_on(platform, {'model.family': 'lstm', **changes})
    assert network.body.activations == 'float32'


def test_the_lstms_gates_are_saved_in_bfloat16():
    run, network = run_on('tpu', {'model.family': 'lstm', 'model.layers': 1})
    state, batch = run.init_state(), first_batch(run)
    text = str(
        jax.make_jaxpr(lambda params: gradients_lib.gradients(params, network, batch, state.carry).view.shared)(
            state.params
        )
    )
    assert 'bf16[4,2,24]' not in text  # without a key: scoring, in float32
    key = jax.random.key(0)
    text = str(
        jax.make_jaxpr(lambda params: gradients_lib.gradients(params, network, batch, state.carry, key).view.shared)(
            state.params
        )
    )
    assert 'bf16[4,2,24]' in text  # T x S x 4K
