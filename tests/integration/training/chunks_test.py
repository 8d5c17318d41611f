"""Tests that results do not depend on how updates are divided into chunks."""

import jax
import numpy as np
import pytest
from helpers import DATA, SPARSE, others_nightly, run_chunk, small_settings

from nplm_jax.config.settings import replace
from nplm_jax.runs.training_from_settings import prepare_run

NCE = {**SPARSE, 'output.kind': 'nce'}
SGD = {'optimizer.learning_rate': 0.1, 'optimizer.decay': 0.05}
ROWWISE = {'optimizer.name': 'rowwise_adam', 'optimizer.learning_rate': 0.003, 'optimizer.decay': 0.5}
PAPER = {'optimizer.name': 'paper', 'optimizer.epsilon_0': 0.02, 'optimizer.decay': 0.05}
ADAM = {'optimizer.name': 'adam', 'optimizer.learning_rate': 0.003, 'optimizer.decay': 0.05}
RECIPES = {
    'sgd sparse': {**NCE, **SGD},
    'sgd dense': SGD,
    'clip_norm': {**SGD, 'optimizer.clip_norm': 0.5},
    'adam': ADAM,
    'adam sparse': {**NCE, **ADAM},
    'rowwise_adam': {**NCE, **ROWWISE},
    'rowwise_adam dense': ROWWISE,
    'row_adaptivity': {**NCE, **ROWWISE, 'optimizer.row_adaptivity': 0.5},
    'paper': PAPER,
    'paper sparse': {**NCE, **PAPER},
}


def end(settings):
    """Returns the parameters and their average after all updates."""
    run = prepare_run(settings, DATA)
    state, step = run.init_state(), 0
    while step < run.schedule.total_steps:
        state, nll_S = run_chunk(run.chunk(state, step))
        step += len(nll_S)
    return {'params': state.params, 'average': state.average}


AVERAGE = {'train.average': 0.95}
TAIL = {'train.average': 1.0, 'train.average_start': 0.4}
CASES = [*((name, AVERAGE) for name in RECIPES), *((n, c) for n in ('sgd dense', 'rowwise_adam') for c in ({}, TAIL))]


@pytest.mark.parametrize('name,average', others_nightly(CASES, ('paper', 'sgd sparse')))
def test_the_number_of_updates_of_an_execution_changes_nothing(name, average):
    settings = small_settings({**RECIPES[name], **average, 'train.epochs': 2})
    ends = [end(replace(settings, {'train.steps_per_execution': steps})) for steps in (1, 20, 50)]
    for tree, tolerance in (('params', 1e-6), ('average', 1e-5)):  # an average adds up the rounding of 20 updates
        leaves = zip(*(jax.tree.leaves(end[tree]) for end in ends), strict=True)
        differences = [float(np.abs(a - b).max()) for a, *others in leaves for b in others]
        assert max(differences, default=0) < tolerance
