"""Tests the tree softmax: equal results from every method, a small tree calculated by hand, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, check_resumed, features_of, loss_of, make_batch, make_network, refuses, small_settings

from nplm_jax.data import vocabulary
from nplm_jax.inference.generation import sample
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs import word_codes

V = 31
CHANGES = {'output.kind': 'tree', 'model.direct': True, 'model.dropout': 0.0}
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (9, 3)), jnp.int32)
TARGETS = jnp.asarray([0, 6, 7, 30, 12, 29, 5, 5, 18], jnp.int32)
FEATURES_OF = jax.jit(features_of, static_argnums=0)


def several_leaves(tmp_path):
    """A code file in which every third word has two leaves."""
    leaves = [w for w in range(V) for _ in range(2 if w % 3 == 0 else 1)]
    codes = dict.fromkeys(range(V), '')
    order = np.random.default_rng(3).permutation(len(leaves))
    for code, i in zip(word_codes.balanced(len(leaves)), order):
        codes[leaves[i]] += f' {code}'
    file = tmp_path / 'codes.tsv'
    words = vocabulary.numbered(V).words
    file.write_text(''.join(f'{word}\t{codes[w].strip()}\n' for w, word in enumerate(words)))
    return str(file)


@pytest.fixture(params=['huffman', 'random', 'several leaves'])
def made(request, tmp_path):
    source = several_leaves(tmp_path) if request.param == 'several leaves' else request.param
    network = make_network(V, {**CHANGES, 'output.tree': source})
    return network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0), np.linspace(-1, 1, V)))


def reference(network, params, contexts):
    """Returns the float64 log P of all words by following the path from the root to each leaf."""
    features = {name: np.asarray(x, np.float64) for name, x in FEATURES_OF(network, params, contexts)[0].items()}
    tables = {name: np.asarray(params[name], np.float64) for name in (*features, 'b_V')}
    y_BxT = tables['b_V'] + sum(x @ tables[name].T for name, x in features.items())
    tree = network.output.nodes
    p_BxV = np.zeros((len(contexts), V))
    for word in range(V):
        for nodes_D, signs_D in zip(tree.nodes_VxRxD[word], tree.signs_VxRxD[word]):
            if signs_D[0]:
                way = [(node, sign) for node, sign in zip(nodes_D, signs_D) if sign]
                p_BxV[:, word] += np.prod([1 / (1 + np.exp(-s * y_BxT[:, t])) for t, s in way], axis=0)
    return np.log(p_BxV)


def test_every_words_probability_is_the_product_of_the_decisions_on_its_way(made):
    network, params = made
    features = FEATURES_OF(network, params, CONTEXTS)[0]
    log_p_BxV = jax.jit(network.output.log_probabilities)(params, features)
    np.testing.assert_allclose(log_p_BxV, reference(network, params, CONTEXTS), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.exp(np.float64(log_p_BxV)).sum(1), 1, atol=1e-6)
    nll_B = jax.jit(network.output.nll)(params, features, TARGETS)
    np.testing.assert_allclose(nll_B, -log_p_BxV[jnp.arange(9), TARGETS], rtol=1e-5, atol=1e-5)


def test_the_losss_gradients_are_those_of_the_exact_probabilities(made):
    network, params = made

    def exact(params):
        log_p_BxV = network.output.log_probabilities(params, features_of(network, params, CONTEXTS)[0])
        return -log_p_BxV[jnp.arange(9), TARGETS].mean()

    grads = jax.jit(jax.grad(lambda params: loss_of(network, params, make_batch(CONTEXTS, TARGETS))[0]))(params)
    expected = jax.jit(jax.grad(exact))(params)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(expected)):
        assert bool(jnp.isfinite(a).all())
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=jax.tree_util.keystr(path))


def test_the_first_biases_make_the_unigram_distribution(made):
    network, _ = made
    log_q_V = jax.nn.log_softmax(jnp.linspace(-1, 2, V))
    params = network.init(jax.random.key(0), np.asarray(log_q_V))
    quiet = jax.tree.map(jnp.zeros_like, params) | {'b_V': params['b_V']}
    log_p_BxV = jax.jit(network.output.log_probabilities)(quiet, FEATURES_OF(network, quiet, CONTEXTS)[0])
    np.testing.assert_allclose(log_p_BxV[0], log_q_V, atol=1e-5)


@pytest.mark.nightly
def test_a_resumed_training_has_the_bits_of_an_unbroken_one_and_generates(tmp_path):
    best = check_resumed(small_settings(CHANGES), tmp_path)
    model = NeuralLanguageModel(make_network(DATA.vocabulary, CHANGES), best)
    assert sample(model, np.array([3, 4]), words=5, samples=2).shape[0] == 2


def test_huffmans_codes_are_the_shortest_for_the_counts():
    counts = [1000, 1, 1, 2, 4, 8, 500, 30]
    codes = word_codes.huffman(counts)
    assert [len(code) for code in codes] == [1, 7, 7, 6, 5, 4, 2, 3]
    assert word_codes.make_tree([[code] for code in codes]).num_nodes == 7


def test_equal_trees_are_equal_and_other_trees_are_not():
    words = vocabulary.numbered(V)
    trees = [word_codes.make_tree(word_codes.codes_of(words, kind)) for kind in ('huffman', 'huffman', 'random')]
    assert trees[0] == trees[1] and hash(trees[0]) == hash(trees[1]) and trees[0] != trees[2]


@pytest.mark.parametrize(
    'content,message',
    [
        ('<rare>\t0\nw1\t10\n', 'codes.tsv'),
        ('<rare>\t0\nw1\t12\nw2\t11\n', 'codes.tsv:2'),
        (
            '<rare>\t0\nw1\t10\nw2\t11\nw1\t11\n',
            'codes.tsv:4',
        ),
        ('<rare>\t0\nw1\t100\nw2\t11\nw3\t101\n', 'codes.tsv'),
        ('<rare>\t0\nw1\t01\nw2\t11\n', 'output.tree'),
        ('<rare>\t0\nw1\t10\nw2\t10\n', 'output.tree'),
        ('<rare>\t0\nw1\t10\nw2\t110\n', 'output.tree'),
    ],
)
def test_a_file_that_is_no_tree_over_the_vocabulary_is_one_line(tmp_path, content, message):
    file = tmp_path / 'codes.tsv'
    file.write_text(content)
    settings = small_settings({**CHANGES, 'output.tree': str(file)})
    with refuses(message):
        settings.output.over(vocabulary.numbered(3))


def test_a_missing_file_and_tied_features_are_one_line():
    with refuses('output.tree'):
        make_network(V, {**CHANGES, 'output.tree': '/nowhere/codes.tsv'})
    tied = {**CHANGES, 'model.family': 'lstm', 'model.direct': False, 'model.tied': True, 'train.batch_size': 16}
    with refuses('model.tied'):
        make_network(V, tied).init(jax.random.key(0))
