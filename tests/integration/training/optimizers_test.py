import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bag_of_features import BagOfFeatures
from helpers import SPARSE, default_settings, make_network, small_settings

from nplm_jax.models.network import Network
from nplm_jax.training.optimizers import (
    HIDDEN,
    TABLES,
    hyperparameters_of,
    label_parameters,
    make_optimizer,
)

TABLE_NAMES = ('C_VxM', 'b_V')


def make(changes, total_steps=100, batch_size=1):
    """Returns the learning rate of an update's number, and the chain."""
    common = {'optimizer.schedule': 'constant', 'optimizer.decay': 0.0, 'train.batch_size': batch_size}
    settings = default_settings({**common, **changes})
    hyperparameters, optimizer = hyperparameters_of(settings), make_optimizer(settings, total_steps, TABLE_NAMES)
    return lambda step: float(optimizer.learning_rate(hyperparameters, step)), optimizer.chain(hyperparameters)


@pytest.mark.parametrize('name', ['sgd', 'adam', 'adagrad'])
def test_every_optimizer_lowers_a_loss_and_clips(name):
    _, optimizer = make({'optimizer.name': name, 'optimizer.learning_rate': 0.1, 'optimizer.clip_norm': 1e-3})
    loss = lambda params: jnp.sum(jnp.square(params['d'] - 3.0))  # noqa: E731
    params = {'d': jnp.zeros(4)}
    state, losses = optimizer.init(params), []
    for _ in range(20):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, step=0)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss(params)))
    assert losses == sorted(losses, reverse=True)
    if name == 'sgd':
        assert float(jnp.linalg.norm(params['d'])) == pytest.approx(20 * 0.1 * 1e-3, rel=1e-4)


def test_class_matrices_of_two_level_and_what_a_body_declares_are_tables():
    class WithPositions(BagOfFeatures):
        tables = ('positions_LxM',)

        def init(self, key, vocabulary_size):
            own = {'positions_LxM': jnp.zeros((self.reach, self.m)), 'W_V': jnp.zeros((self.m, self.m))}
            return super().init(key, vocabulary_size) | own

    changes = {**SPARSE, 'output.kind': 'two_level', 'optimizer.name': 'rowwise_adam', 'optimizer.decay': 0.1}
    network = Network(WithPositions(3, 4), make_network(23, changes).output, 23)
    params = network.init(jax.random.key(0))
    labels = label_parameters(params, network.tables)
    assert labels == {**dict.fromkeys(params, TABLES), 'W_V': HIDDEN}

    hyperparameters = hyperparameters_of(small_settings(changes))
    chain = make_optimizer(small_settings(changes), 100, network.tables).chain(hyperparameters)
    grads = jax.tree.map(jnp.ones_like, params)
    rows = {name: jnp.arange(2) for name in network.word_tables}
    sparse = {**grads, **{name: grads[name][:2] for name in rows}}
    extra = {'hyperparameters': hyperparameters, 'step': 0}
    dense_updates, state = chain.update(grads, chain.init(params), params, **extra)
    updates, _ = chain.update(sparse, chain.init(params), params, rows=rows, **extra)
    kept = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    assert [shape for name, shape in kept.items() if 'U_GxM' in name] == [(network.output.num_classes,)]
    jax.tree.map(np.testing.assert_array_equal, updates['classes'], dense_updates['classes'])
