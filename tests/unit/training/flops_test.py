"""Compares the FLOPs per word with counts by hand: six for each weight in a product."""

import jax
import jax.numpy as jnp
import pytest
from helpers import DATA, small_settings

from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import chips
from nplm_jax.training.flops import Cost, cost_of, product_flops

V = len(DATA.vocabulary)
N, M, K = 3, 4, 5  # context words, features, hidden units
P = N * M
WINDOW = {'model.n': N + 1, 'model.m': M, 'model.h': K, 'train.batch_size': 8, 'output.precision': 'float32'}
STREAM = {**WINDOW, 'model.direct': False, 'model.bptt_length': 4}
S, R, H, F = 9, 6, 2, 12  # samples, attended words, units of a Transformer, those inside its feed-forward layer


DENSE = {**WINDOW, 'model.direct': False}


@pytest.mark.parametrize(
    'changes,weights',
    [
        ({**WINDOW, 'model.direct': True}, K * P + V * (K + P + 1)),
        (DENSE, K * P + V * (K + 1)),
        ({**WINDOW, 'model.direct': True, 'model.h': 0}, V * (P + 1)),
    ],
    ids=['paper', 'paper without W', 'paper without U'],
)
def test_a_word_costs_six_operations_for_each_weight_that_it_multiplies(changes, weights):
    run = prepare_run(small_settings(changes), DATA)
    assert run.cost == cost_of(run.program, run.hyperparams, run.inputs)
    assert run.cost.flops_per_word == 6 * weights


@pytest.mark.parametrize(
    'changes,weights',
    [
        # In blocks that do not divide the batch, in microbatches: one example of nine is padding.
        ({**DENSE, 'output.block_size': 3, 'train.accumulate': 2}, 9 / 8 * V * (K + 1) + K * P),
        # Each word of the batch has all samples and the row of its target.
        ({**DENSE, 'output.kind': 'sampled', 'output.samples': S}, K * P + (S + 1) * K),
        ({**STREAM, 'model.family': 'lstm'}, 4 * K * (M + K) + V * (K + 1)),
        ({**STREAM, 'model.family': 'gru', 'model.weight_dropout': 0.5}, 3 * K * (M + K) + V * (K + 1)),
        (
            {**STREAM, 'model.family': 'transformer', 'model.h': H, 'model.heads': 1, 'model.memory': R}
            | {'model.expansion': F // H},
            M * H + 4 * H * H + 2 * (R + 4) * H + 2 * H * F + V * (H + 1),  # the scores of R + T words and their sum
        ),
    ],
    ids=['blocks', 'sampled', 'lstm', 'gru', 'transformer'],
)
def test_sums_of_elementwise_products_count_as_they_are_computed(changes, weights):
    assert prepare_run(small_settings(changes), DATA).cost.flops_per_word == pytest.approx(6 * weights, rel=0.06)


def test_products_count_in_loops_branches_and_functions():
    x, kernel = jnp.ones((2, 3)), jnp.ones((3, 3))

    def scanned(x):
        return jax.lax.scan(lambda x, _: (jax.jit(jnp.matmul)(x, kernel), None), x, None, length=5)[0]

    def branches(x):
        return jax.lax.cond(x[0, 0] > 0, scanned, lambda x: x @ kernel, x)

    def convolved(x):
        return jax.lax.conv(jnp.ones((1, 7, 4, 4)), jnp.ones((6, 7, 2, 2)), (1, 1), 'VALID')

    def summed(x):
        return jnp.sum(x * 2.0, axis=1) + jnp.sum(x, axis=1)

    counts = [product_flops(jax.make_jaxpr(f)(x).jaxpr) for f in (scanned, branches, convolved, summed)]
    assert counts == [5 * 2 * 2 * 9, 5 * 2 * 2 * 9, 2 * (6 * 3 * 3) * (7 * 2 * 2), 2 * 6]


def test_the_share_of_the_peak_is_of_all_devices_and_of_known_ones_alone():
    peak = chips.peak_flops(['TPU v5 lite'] * 4)
    assert peak == 4 * 197e12 and chips.peak_flops(['TPU v5 lite', 'cpu']) is None
    rates = {'words_per_second': 1e6, 'flops_per_second': 1e14}
    assert Cost(10**8).rates(1e6) == rates and Cost(10**8, peak).rates(1e6) == {**rates, 'mfu': 1e14 / peak}
    assert [Cost(10**8, p).describe(1e6) for p in (None, peak)] == ['100TFLOP/s', '100TFLOP/s (13% of peak)']


def test_every_chip_has_figures_of_the_right_size_and_a_public_source():
    for chip in chips.CHIPS.values():
        assert 1e14 < chip.flops < 1e15 and 1e10 < chip.memory < 2e11 and chip.source.startswith('https://')
        assert 8e11 < chip.memory_bandwidth < 5e12
