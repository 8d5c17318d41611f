"""Tests that values returned by plug-in bodies and output layers are checked before training."""

import pytest
from helpers import DATA, SPARSE, plugin_folder, refuses, small_settings

from nplm_jax.config.registry import KINDS, NETWORKS
from nplm_jax.runs import plugin_contract
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run

HEAD = """
import dataclasses
import jax.numpy as jnp
from nplm_jax.models.body import BodyOutput
from nplm_jax.models.nplm import Window
from nplm_jax.models.recurrent import Elman
from nplm_jax.outputs.full import FullSoftmax

@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine({base}):
    {code}
"""
FEATURES = 'def features(self, params, e_SxLxM, state, *args, **kwargs):\n        '
MISTAKES = {  # a mistake -> the base class, the code, and the member that is named
    'no C': ('Window', 'def init(self, *args): return {"H": jnp.ones(3)}', 'init'),
    'C of another size': ('Window', 'def init(self, key, size): return {"C_VxM": jnp.ones((size + 1, 3))}', 'init'),
    'no dictionary': ('Window', 'def init(self, *args): return 3', 'init'),
    'integers': ('Window', 'def init(self, *args): return super().init(*args) | {"k": jnp.ones(3, int)}', 'init'),
    'no row for a stream': ('Elman', 'def start(self, num_streams): return jnp.ones(7)', 'start'),
    'no width': ('Window', 'widths = {"U_VxK": "wide"}', 'widths'),
    'features for no width': ('Window', 'widths = {"U_VxK": 5, "Z_VxK": 5}', 'features'),
    'another width': ('Window', 'widths = {"U_VxK": 50, "W_VxP": 9}', 'features'),
    'no BodyOutput': ('Window', f'{FEATURES}return {{"U_VxK": e_SxLxM}}', 'features'),
    'all positions': ('Window', f'{FEATURES}return BodyOutput({{"U_VxK": e_SxLxM @ jnp.ones((3, 5))}})', 'features'),
    'a name error': ('Window', f'{FEATURES}return missing', 'features'),
    'no state': ('Elman', f'{FEATURES}return BodyOutput({{"U_VxK": e_SxLxM[:, :, :1].repeat(5, axis=2)}})', 'features'),
    'a vector for a penalty': (
        'Window', f'{FEATURES}return super().features(params, e_SxLxM, state)._replace(penalty=jnp.ones(3))', 'features'
    ),
    'no mean': ('FullSoftmax', 'def loss(self, params, features, *args): return params.shared["b_V"]', 'loss'),
    'an error in the loss': ('FullSoftmax', 'def loss(self, *args): return self.missing', 'loss'),
    'words before examples': (
        'FullSoftmax',
        'def log_probabilities(self, params, features): return super().log_probabilities(params, features).T',
        'log_probabilities',
    ),
}  # fmt: skip


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Returns a function that trains a class and returns its error."""

    def refused(number, base, code):
        module, key = f'mistake_{number}', 'output.kind' if base == 'FullSoftmax' else 'model.family'
        with plugin_folder(tmp_path, monkeypatch, **{module: HEAD.format(base=base, code=code)}):
            settings = small_settings({'model.h': 5, 'model.bptt_length': 7, key: f'{module}:Mine'})
            with refuses(key) as caught:
                prepare_run(settings, DATA)
        return caught.value

    return refused


@pytest.mark.parametrize('mistake', MISTAKES)
def test_a_mistake_of_an_author_is_one_line_that_names_class_and_member(mistake, refused):
    base, code, member = MISTAKES[mistake]
    error = refused(list(MISTAKES).index(mistake), base, code)
    assert f'Mine.{member}' in error.problem and '\n' not in str(error)


def test_the_error_has_the_authors_exception_and_line(refused):
    error = refused('line', 'Window', f'{FEATURES}return missing')
    assert isinstance(error.__cause__, NameError) and 'mistake_line.py:' in error.problem


def test_a_window_of_all_tokens_is_refused(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, endless=HEAD.format(base='Window', code='reach = None')):
        with refuses('model.family'):
            load_settings({'model.family': 'endless:Mine'})


@pytest.mark.parametrize('family', NETWORKS)
def test_built_in_bodies_keep_the_contract(family):
    settings = small_settings({'model.family': family, 'model.h': 8, 'model.heads': 2})
    plugin_contract.check_body(network_from_settings(settings, 17))


@pytest.mark.parametrize('kind', KINDS['output.kind'].paths)
def test_built_in_output_layers_keep_the_contract(kind):
    network = network_from_settings(small_settings({**SPARSE, 'output.kind': kind}), DATA.vocabulary)
    extras = network.output.make_extras(DATA.train_words, len(DATA.vocabulary))
    plugin_contract.check_output(network, plugin_contract.check_body(network), extras)
