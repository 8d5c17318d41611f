"""Tests the race on an accelerator: order, resumption, failing rows, the counts of a row, and the table."""

import json
import re
import subprocess

import jax
import pytest
from helpers import refuses
from studies import start

from experiments import study
from experiments.cost.accelerator import race, rows
from experiments.cost.speed import problem
from nplm_jax.runs import experiment

MODULE = race.MODULE
ABOUT = {'platform': 'gpu', 'kind': 'NVIDIA H100 80GB HBM3', 'peak': 989e12, 'commit': 'c', 'device': '1 x H100'}
MEASURED = {'batch': 4096, 'flops_per_word': 1e9, 'words_per_second': {'ours': [900, 1100, 1000]}}
FOLDER = 'NVIDIA-H100-80GB-HBM3'


@pytest.fixture
def children(monkeypatch, tmp_path):
    """Returns the response of each child (a result, or an exception to raise) and the names of started children."""
    answers, started = {race.ABOUT: ABOUT}, []

    def run_child(name, rehearse, seconds):
        if name != race.ABOUT:
            started.append(name)
        answer = answers.get(name, MEASURED)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(race, 'run_child', run_child)
    return answers, started


def test_rows_are_measured_in_order_of_worth_and_written_as_they_come(children, tmp_path, monkeypatch):
    answers, started = children
    names = list(rows.ROWS)
    assert names[:3] == ['mlp1-4096', 'default-4096', 'transformer-4096'] and names[-1] == 'transformer-131072'
    answers['mlp1-4096-plain_jax'] = subprocess.TimeoutExpired('race', 1)
    monkeypatch.setattr(race, 'LIMIT', 1e6)  # so the race ends because of its minutes, not because of the row's limit
    race.race(tmp_path, 25, rehearse=False)
    before = names[: names.index('mlp1-4096-plain_jax')]
    assert started == [*before, 'mlp1-4096-plain_jax']
    assert {path.stem for path in (tmp_path / FOLDER).iterdir()} == set(before)
    row = json.loads((tmp_path / FOLDER / 'mlp1-4096.json').read_text())
    assert row.items() >= {'row': 'mlp1-4096', **MEASURED, **ABOUT}.items() and row['command'].startswith('python -m')


def test_the_race_goes_on_after_a_failure_and_tries_it_again_last(children, tmp_path, capsys):
    answers, started = children
    answers['default-4096'] = {'failed': 'out of memory'}
    answers['transformer-512'] = subprocess.TimeoutExpired('race', race.LIMIT)
    race.race(tmp_path, 25, rehearse=False)
    assert started == list(rows.ROWS)
    assert re.search('^default-4096: out of memory', capsys.readouterr().err, re.MULTILINE)  # the reason, as given
    (tmp_path / FOLDER / 'mlp9-128-vmap.json').unlink()
    started.clear()
    answers.pop('default-4096')
    race.race(tmp_path, 25, rehearse=False)
    assert started == ['mlp9-128-vmap', 'default-4096', 'transformer-512']
    measured = race.read(tmp_path / FOLDER)
    assert 'failed' not in measured['default-4096']
    assert f'{race.LIMIT:.0f}' in measured['transformer-512']['failed']
    started.clear()
    race.race(tmp_path, 25, rehearse=False)
    assert started == ['transformer-512']


def test_no_row_begins_after_the_minutes(children, tmp_path, capsys):
    race.race(tmp_path, 1e-9, rehearse=False)
    assert not children[1] and capsys.readouterr().err.count(str(len(rows.ROWS))) == 2


@pytest.mark.parametrize(
    'about,key', [({'platform': 'cpu', 'kind': 'cpu'}, 'platform'), ({'failed': 'no device'}, 'JAX')]
)
def test_a_race_without_an_accelerator_is_refused(children, tmp_path, about, key):
    children[0][race.ABOUT] = about
    with refuses(key):
        race.race(tmp_path, 25, rehearse=False)
    assert not list(tmp_path.iterdir())


def test_a_row_of_a_rehearsal_is_measured_in_a_process_of_its_own():
    measured = race.run_child('mlp1-512', rehearse=True, seconds=600)
    assert measured['batch'] == rows.SMALL.batch(512) == 16 and measured['updates'] >= rows.SMALL.steps
    assert len(measured['words_per_second']['ours']) == rows.SMALL.rounds
    assert min(measured['words_per_second']['ours']) > 0


def test_a_row_that_ends_its_process_is_one_line(monkeypatch):
    monkeypatch.setattr(race, 'MODULE', 'experiments.cost.speed.race')  # has no --child
    assert '--child=mlp1-512' in race.run_child('mlp1-512', rehearse=True, seconds=600)['failed']


@pytest.mark.parametrize(
    'error,reason',
    [
        (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory: 1 GB\nmore'), 'RESOURCE_EXHAUSTED'),
        (jax.errors.JaxRuntimeError('INTERNAL: ptxas\nmore'), 'JaxRuntimeError: INTERNAL: ptxas'),
        (ModuleNotFoundError("No module named 'torch'", name='torch'), 'pip install torch'),
    ],
)
def test_whatever_fails_in_a_row_is_one_line(monkeypatch, capsys, error, reason):
    def fail(size):
        raise error

    monkeypatch.setitem(rows.ROWS, 'mlp1-4096', fail)
    assert start(MODULE, ['--child=mlp1-4096', '--rehearse']) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


@pytest.mark.parametrize('network', ['mlp1', 'mlp9'])
def test_the_operations_of_a_word_are_those_of_the_contestants(network):
    B, size = 512, rows.SMALL
    (run,) = rows.prepare(network, B, size, [{}])
    shared = problem.make_problem(rows.NETWORKS[network](), size.vocabulary, B, 1, 1)
    assert run.cost.flops_per_word == pytest.approx(shared.flops_per_word, rel=0.04)


def test_the_sweep_trains_the_same_together_and_one_by_one():
    size = rows.Size(vocabulary=50, samples=10, smaller=128, words=64, steps=2, rounds=1)
    measured = rows.sweep('mlp9', 128, size)
    assert measured['words_per_second'].keys() == {'together', 'one by one'} and len(rows.POINTS) == 16
    assert measured['largest_relative_difference'] < 1e-3


def test_a_large_batch_is_validated_every_quarter_of_an_epoch_at_a_larger_rate():
    config = rows.NETWORKS['mlp9']()
    settings = experiment.load_settings(rows.large_batch(config, 4 * config.train.batch_size))
    assert settings.optimizer.learning_rate == 2 * config.optimizer.learning_rate and settings.paper.valid == 280
    assert settings.train.evaluate_every * 4 * settings.train.batch_size == pytest.approx(800_000, rel=0.01)


def test_the_table_has_medians_the_share_of_the_peak_and_every_row():
    against = {**MEASURED, 'words_per_second': {'ours': [900, 1100, 1000], 'plain_jax': [450, 1000, 250]}}
    validations = [{'update': 390, 'seconds': 31.0, 'perplexity': 279.5}]
    trained = {'batch': 4096, 'target': 280.0, 'seconds_to_target': 31.0, 'validations': validations}
    measured = {
        'mlp1-4096': {**MEASURED, **ABOUT, 'flops_per_word': 98.9e9},
        'default-4096': {'failed': 'out of memory', **ABOUT},
        'mlp1-4096-plain_jax': {**against, **ABOUT, 'peak': None},
        'mlp9-4096-perplexity': {**trained, **ABOUT},
    }
    lines = race.make_table(measured).splitlines()
    shown = {line.split('|')[1].strip(): [c.strip() for c in line.split('|')[2:-1]] for line in lines[2:-2]}
    assert list(shown) == list(rows.ROWS)
    assert shown['mlp1-4096'] == ['4,096', '1,000', '900-1,100', '98.90', '10.0%', '-', '']
    assert shown['default-4096'] == [*['-'] * 6, 'out of memory'] and set(shown['mlp1-512'][:-1]) == {'-'}
    assert shown['mlp1-4096-plain_jax'][3:6] == ['1.00', '-', '2.00']
    assert re.findall(r'[\d.]+', shown['mlp9-4096-perplexity'][-1]) == ['280', '279.5', '31', '390']
    assert ABOUT['device'] in lines[-1]


def test_the_figure_of_another_folder_is_not_that_of_the_page(monkeypatch, tmp_path):
    paths = []
    monkeypatch.setattr(race, 'draw', lambda measured, path: paths.append(path))
    for output in ('', tmp_path):
        race.show(study.Flags(figure=True, output=output, rehearse=False))
    assert paths == [race.HERE / 'race.png', tmp_path / 'race.png']
