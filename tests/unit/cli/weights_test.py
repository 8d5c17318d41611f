"""Tests mixture weights from the command line and from files, in every command with mixtures."""

import io
import json
import math
import shutil
import sys

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.cli import __main__ as cli
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import loading
from nplm_jax.runs.mixture_weights import read_weights

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture
def pair(folders):
    return [str(folders / 'network'), str(folders / 'counts')]


def p_of_dog(folders, weights):
    """Returns P(dog | <p> i like) of the mixture with the given weights."""
    models = [loading.load(folder) for folder in folders]
    words = models[0].vocabulary
    context = words.encode(['<p>', 'i', 'like'])[None]
    return sum(w * math.exp(m.model.next_word(context)[0, words.ids['dog']]) for w, m in zip(weights, models))


@pytest.mark.parametrize(
    'text, expected', [('', [0.5, 0.5]), ('0.7,0.3', [0.7, 0.3]), ('0.33,0.66', [1 / 3, 2 / 3]), ('1, 0', [1, 0])]
)
def test_numbers_that_sum_to_one_up_to_rounding(text, expected):
    weights_1xM = read_weights(text, ['a', 'b'])
    np.testing.assert_allclose(weights_1xM, [expected], atol=0.01)
    assert weights_1xM.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    'text, key',
    [
        ('0.7', '--weights'),
        ('0.7,0.2,0.1', '--weights'),
        ('0.7,0.4', '--weights'),
        ('1.5,-0.5', '--weights'),
        ('0.7,,0.3', '--weights'),
        ('1e999,0', '--weights'),
        ('/nowhere.json', '/nowhere.json'),
    ],
)
def test_other_weights_are_refused(text, key):
    with refuses(key):
        read_weights(text, ['a', 'b'])


def test_one_run_takes_no_weights(folders):
    with refuses('--weights'):
        loaded_models.load_models([str(folders / 'network')], '1')


@pytest.fixture
def learned(pair, tmp_path, lines):
    cli.main(['mix', *pair, f'--output={tmp_path / "weights.json"}'])
    lines()
    return tmp_path / 'weights.json'


def test_the_file_of_mix_is_matched_to_the_runs_whatever_their_order(pair, learned):
    written = {m['name']: m['weight'] for m in json.loads(learned.read_text())['models']}
    expected = [written['network'], written['counts']]
    np.testing.assert_allclose(read_weights(str(learned), pair)[0], expected)
    np.testing.assert_allclose(read_weights(str(learned), pair[::-1])[0], expected[::-1])


def test_runs_that_were_moved_and_renamed_keep_their_weights(pair, learned, tmp_path):
    network, counts = (shutil.copytree(folder, tmp_path / name) for folder, name in zip(pair, ('counts', 'new')))
    np.testing.assert_array_equal(read_weights(str(learned), [counts, network]), read_weights(str(learned), pair[::-1]))


@pytest.mark.parametrize('same', [['results.json'], ['config.json', 'corpus.json', 'vocabulary.txt']])
def test_weights_of_one_run_are_refused_for_another_of_the_same_name(pair, learned, folders, tmp_path, same):
    other = shutil.copytree(folders / 'other', tmp_path / 'counts')
    for name in same:
        shutil.copy(folders / 'counts' / name, other)
    with refuses('--weights'):
        read_weights(str(learned), [pair[0], str(other)])


def test_a_file_of_other_runs_is_refused(pair, learned, tmp_path):
    (tmp_path / 'no.json').write_text('{"models": [{"name": 3}]}')
    with refuses('--weights'):
        read_weights(str(tmp_path / 'no.json'), pair)
    models = json.loads(learned.read_text())
    models['models'].append({'folder': 'third', 'digest': '', 'weight': 0.5})
    (tmp_path / 'three.json').write_text(json.dumps(models))
    with refuses('--weights'):
        read_weights(str(tmp_path / 'three.json'), pair)


def test_every_command_that_mixes_takes_the_weights(pair, lines, monkeypatch):
    expected = p_of_dog(pair, [0.9, 0.1])
    assert abs(expected - p_of_dog(pair, [0.5, 0.5])) > 1e-4
    flags = [*pair, '--weights=0.9,0.1']
    lines()
    cli.main(['next', *flags, '--prompt=i like', '--count=100', '--json'])
    (output,), _ = lines()
    (dog,) = [entry['p'] for entry in json.loads(output)['next'] if entry['word'] == 'dog']
    assert dog['mixture'] == pytest.approx(expected, rel=1e-5)
    assert dog['mixture'] == pytest.approx(0.9 * dog['network'] + 0.1 * dog['counts'], rel=1e-5)
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like dog')))
    cli.main(['score', *flags, '--json'])
    (output,), _ = lines()
    assert 10 ** json.loads(output)['lines'][0]['log10_p'][2] == pytest.approx(expected, rel=1e-5)
    cli.main(['generate', *flags, '--prompt=i like', '--words=1', '--beam=9', '--json'])
    (output,), _ = lines()
    (text,) = [text for text in json.loads(output)['texts'] if text['words'][-1] == 'dog']
    assert 10 ** text['log10_p'] == pytest.approx(expected, rel=1e-5)
