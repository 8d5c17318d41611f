"""Tests the choices of `--minutes` at simulated speeds, and a run that it starts and resumes."""

import json
import re

import numpy as np
import pytest
from helpers import launch, numbers, one_line, refuses

import nplm_jax
from configs import presets
from configs import text as text_config
from nplm_jax.config import compose
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.runs import experiment, time_budget, width_choice
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.training.milestones import Schedule
from nplm_jax.utils.errors import BadInput


def random_text(num_words):
    words = np.random.default_rng(0).zipf(1.5, num_words) % 300
    return '\n\n'.join(' '.join(f'w{word}' for word in words[i : i + 50]) for i in range(0, num_words, 50))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / 'text.txt'
    path.write_text(random_text(50_000))
    return path


@pytest.fixture
def data(text):
    return SharedCorpus(experiment.load_settings(config_of(text))).data


def config_of(path):
    config = text_config.get_config()
    config.corpus.path = str(path)
    return config


@pytest.fixture
def timed(monkeypatch):
    """Simulates updates of a millisecond for 100 units, proportional to units**1.4. All other times are 0."""
    widths = []

    def measure(settings, data, folder):
        widths.append(settings.model.h)
        return width_choice.Timing(1e-3 * (settings.model.h / 100) ** 1.4, 0.0, 0.0, 1e-12)

    monkeypatch.setattr(width_choice, 'measure', measure)
    return widths


def choose(text, data, minutes, **typed):
    typed = {key.replace('__', '.'): value for key, value in typed.items()}
    config = config_lib.override(config_of(text), typed)
    return time_budget.choose(config, typed, minutes, presets.network, data, text.parent / 'run')


def test_the_widest_network_that_reads_enough_words_is_chosen_and_fills_the_time(text, data, timed, monkeypatch):
    monkeypatch.setattr(width_choice, 'MAX_PASSES', 10**6)
    for minutes in (0.5, 2, 5):
        choice = choose(text, data, minutes)
        width, updates = choice.keys['model.h'], choice.keys['train.max_steps']

        affordable = {w: 60 * minutes / (1e-3 * (w / 100) ** 1.4) for w in width_choice.WIDTHS}  # updates
        assert width == max(
            w for w, number in affordable.items() if 512 * number >= width_choice.WORDS_PER_SQUARE * w**2
        )
        assert 0 <= affordable[width] - updates <= 20
        passes = updates / (len(data.train) // 512)
        assert choice.keys['train.epochs'] == np.ceil(passes)
        assert choice.keys['model.dropout'] == presets.network(width, passes, len(data.train))['model.dropout']
    assert len(timed) > 3  # the first width was not the last


def test_a_text_is_read_in_thirty_passes_at_most(text, data, timed):
    choice = choose(text, data, 60)
    words = 30 * len(data.train)
    assert choice.keys['train.max_steps'] == 30 * (len(data.train) // 512)
    assert choice.keys['train.epochs'] == 30
    widths = [w for w in width_choice.WIDTHS if words >= width_choice.WORDS_PER_SQUARE * w**2]
    assert choice.keys['model.h'] == max(widths)
    assert '60' in numbers(choice.reasons[1]) and float(numbers(choice.reasons[2])[0]) > 0  # of the evaluation
    assert '0.02' in numbers(choose(text, data, 0.02).reasons[1])


def test_the_compilation_of_the_last_chunk_of_an_epoch_is_planned_and_no_other(text, data, monkeypatch):
    monkeypatch.setattr(width_choice, 'MAX_PASSES', 10**6)
    monkeypatch.setattr(width_choice, 'measure', lambda *_: width_choice.Timing(1e-3, 0.0, 10.0, 1e-12))
    size, per_epoch = presets.RECURRENT['train.steps_per_execution'], len(data.train) // 512
    total = choose(text, data, 0.5, model__h=64).keys['train.max_steps']
    assert per_epoch % size and 0 <= 20_000 - total <= size
    schedule = Schedule(per_epoch, total, total, total, total, size)
    ends = [0]
    while ends[-1] < total:
        ends.append(schedule.next_boundary(ends[-1]))
    assert {*np.diff(ends).tolist()} == {size, per_epoch % size}


def test_the_only_chunk_of_an_epoch_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setattr(width_choice, 'MAX_PASSES', 10**6)
    monkeypatch.setattr(width_choice, 'measure', lambda *_: width_choice.Timing(1e-3, 0.0, 10.0, 1e-12))
    text = tmp_path / 'short.txt'
    text.write_text(random_text(4_400))
    data = SharedCorpus(experiment.load_settings(config_of(text))).data
    per_epoch = len(data.train) // 512
    assert per_epoch < presets.RECURRENT['train.steps_per_execution']
    assert 0 <= 30_000 - choose(text, data, 0.5).keys['train.max_steps'] <= per_epoch


def test_the_evaluation_of_a_sample_takes_the_time_of_its_words(text, data, monkeypatch):
    monkeypatch.setattr(width_choice, 'measure', lambda *_: width_choice.Timing(1e-3, 0.0, 0.0, 1e-3))
    assert numbers(choose(text, data, 2, model__h=64, eval__words=2000).reasons[2]) == ['4,000', '4']


def test_networks_are_timed_in_a_run_of_one_pass(text, data, monkeypatch):
    epochs = []

    def measure(settings, data, folder):
        epochs.append(settings.train.epochs)
        return width_choice.Timing(1e-3, 0.0, 0.0, 1e-12)

    monkeypatch.setattr(width_choice, 'measure', measure)
    choose(text, data, 1)
    assert {*epochs} == {1}  # a check such as that of train.average counts the updates of the timed run


def test_what_is_typed_stays(text, data, timed):
    choice = choose(text, data, 1, model__h=48, model__dropout=0.123, output__kind='sampled', output__samples=77)
    made = width_choice.apply_keys(config_of(text), choice.keys, {'model.h': 48})
    assert timed == [48] and not {'model.h', 'model.dropout', 'output.samples'} & choice.keys.keys()
    assert made['model.family'] == 'mogrifier' and made['model.m'] == 48  # too narrow for attention
    assert choose(text, data, 1, model__h=96).keys['model.family'] == 'attentive_mogrifier'


@pytest.mark.parametrize(
    'typed',
    [
        {'model.family': 'lstm'},
        {'model.family': 'nplm', 'model.n': 4},
        {'model.family': 'residual'},
        {'optimizer.name': 'sgd'},
        {'output.kind': 'full'},
        {'optimizer.name': 'optax:lion'},
        {'model.family': 'nplm', 'optimizer.name': 'paper'},
    ],
)
def test_of_a_typed_component_no_chosen_key_is_left_that_it_does_not_have(text, data, timed, typed):
    config = config_lib.override(config_of(text), typed)
    choice = time_budget.choose(config, typed, 1, presets.network, data, text.parent / 'run')
    made = flatten(width_choice.apply_keys(config, choice.keys, typed))
    experiment.load_settings(made)
    assert typed.items() <= made.items()
    rates = {'sgd': 2.0, 'optax:lion': 0.003, 'paper': None}  # of the network's default optimizer: 0.008
    assert made.get('optimizer.learning_rate') == rates.get(made['optimizer.name'], 0.008)


@pytest.mark.parametrize('optimizer', ['sgd', 'adam', 'optax:lion', 'rowwise_adam'])
def test_a_chosen_optimizer_has_its_own_rates(text, data, timed, optimizer):
    config = text_config.get_config(optimizer)
    config.corpus.path = str(text)
    typed = compose.components_among(config, optimizer)
    choice = time_budget.choose(config, typed, 1, presets.network, data, text.parent / 'run')
    made = flatten(width_choice.apply_keys(config, choice.keys, typed))
    network = {**presets.network(200, 1, len(data.train)), **choice.keys}
    expected = network if optimizer == 'rowwise_adam' else flatten(config)
    for key in ('optimizer.name', 'optimizer.learning_rate', 'optimizer.table_rate', 'optimizer.decay'):
        assert made[key] == expected[key], key


def test_a_short_text_is_read_in_as_many_updates_as_planned(tmp_path, timed):
    text = tmp_path / 'short.txt'
    text.write_text(random_text(4_400))
    data = SharedCorpus(experiment.load_settings(config_of(text))).data
    keys = choose(text, data, 1).keys
    assert len(data.train) // 512 * keys['train.epochs'] >= keys['train.max_steps']  # the rest of a batch is omitted
    assert keys['model.family'] == 'mogrifier'  # without attention, which raises the perplexity of short texts


def test_a_time_that_is_too_short_says_what_one_pass_needs(text, data, timed):
    needed = len(data.train) / 512 * 1e-3 * 0.64**1.4 / 60
    with refuses('--minutes') as refused:
        choose(text, data, needed / 3)
    assert needed < float(re.search(r'at least ([\d.]+)', str(refused.value))[1]) < 1.1 * needed
    assert str(refused.value).endswith('use only part of the text (--config.corpus.words)')
    for factor in (0.97, 1.01):  # within the 5% tolerance, and less than one chunk above one epoch
        assert choose(text, data, needed * factor).keys['train.max_steps'] == len(data.train) // 512
    with refuses('--minutes'):
        choose(text, data, needed * 0.93)


def test_a_short_text_gets_a_five_gram(tmp_path, timed):
    text = tmp_path / 'short.txt'
    text.write_text(random_text(3_000))
    choice = choose(text, SharedCorpus(experiment.load_settings(config_of(text))).data, 1)
    made = width_choice.apply_keys(config_of(text), choice.keys, {})
    assert (made['model.family'], made['model.n']) == ('modified_kneser_ney', 5) and not timed
    experiment.load_settings(made)  # all remaining keys are read by a 5-gram
    with refuses('--minutes'):
        choose(text, SharedCorpus(experiment.load_settings(config_of(text))).data, 1, model__dropout=0.3)
    with refuses('--minutes'):
        choose(text, SharedCorpus(experiment.load_settings(config_of(text))).data, 1, model__family='lstm')


@pytest.mark.parametrize('passes', [0.9, 1.5, 3, 6, 12, 40, 200])
def test_the_network_of_any_number_of_passes_is_allowed(passes):
    config = text_config.get_config('one_minute')
    config.update_from_flattened_dict(dict(presets.network(128, passes, 10**5)))
    experiment.load_settings(config)


def test_a_run_that_has_trained_nothing_gets_a_new_choice_unless_another_process_has_just_begun_it(
    text, tmp_path, timed, monkeypatch
):
    folder = tmp_path / 'run'
    for minutes in (1, 0.02, 0.02):  # all starts were killed before the first checkpoint
        config, _ = time_budget.config_for_budget(config_of(text), 'configs/text.py', {}, minutes, folder)
        record = json.loads((folder / 'minutes.json').read_text())
        assert (record['minutes'], record['keys']['model.h']) == (minutes, config.model.h)
    choose_alone = time_budget.choose

    def choose_while_another_begins(*arguments):
        time_budget.write_choice(folder, time_budget.Choice(1, {}, ['another']))
        return choose_alone(*arguments)

    monkeypatch.setattr(time_budget, 'choose', choose_while_another_begins)
    with pytest.raises(BadInput) as caught:
        time_budget.config_for_budget(config_of(text), 'configs/text.py', {}, 0.02, folder)
    assert (caught.value.key, caught.value.value) == ('--workdir', str(folder))


def test_a_choice_of_a_users_function_is_read_whatever_depends_on_the_width(text, data, timed):
    def network(width, passes, words):
        large = {'model.dropout': 0.3, 'optimizer.name': 'adam'} if width > 64 else {'optimizer.name': 'sgd'}
        return {'model.family': 'lstm', 'model.m': width, 'model.h': width, **large}

    folder = text.parent
    choice = time_budget.choose(config_of(text), {}, 1, network, data, folder)
    assert choice.keys['optimizer.name'] == 'adam'
    time_budget.write_choice(folder, choice)
    (folder / 'checkpoints' / '5').mkdir(parents=True)
    assert time_budget.read_choice(folder, 1, network) == choice


def test_a_choice_of_a_users_function_may_have_integers_for_numbers(tmp_path):
    def network(width, passes, words):
        return {'model.h': width, 'model.dropout': 0.3 if passes > 2 else 0}

    choice = time_budget.Choice(5.0, {'model.h': 8, 'model.dropout': 0.3}, [])
    time_budget.write_choice(tmp_path, choice)
    assert time_budget.read_choice(tmp_path, 6.0, network) is None  # nothing was trained
    (tmp_path / 'checkpoints' / '5').mkdir(parents=True)
    assert time_budget.read_choice(tmp_path, 5.0, network) == choice


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--minutes=0'], '--minutes=0.0:'),
        (['--minutes=inf'], '--minutes=inf:'),
        (['--minutes=1', '--config.train.epochs=2'], '--config.train.epochs=2:'),
        (['--config=text:backoff', '--minutes=1'], "--config='backoff':"),
        (['--config=text:kneser_ney_5', '--minutes=1'], "--config='kneser_ney_5':"),
        (['--minutes=1', '--config.model.direct=True', '--config.model.h=0'], '--config.model.h=0:'),
    ],
)
def test_bad_input_is_one_line(text, tmp_path, flags, message):
    done = launch(
        *([] if flags[0].startswith('--config=') else ['--config=text']),
        *flags,
        f'--config.corpus.path={text}',
        f'--workdir={tmp_path / "run"}',
    )
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count('\n') == 1
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('file', ['text:one_minute', 'text:lmplz', 'brown:mlp9', 'brown:mlp9,lstm', 'brown:paper'])
def test_a_preset_with_its_own_model_is_refused(file):
    with refuses('--config'):
        time_budget.check_preset(file)


KEPT = (
    'text',
    'text:lstm,nce,adam',
    'text:residual,adam',
    'text:optax:lion',
    'text:characters',
    'brown:cased',
    'brown:lstm',
)


@pytest.mark.parametrize('file', KEPT)
def test_components_and_words_that_change_the_corpus_are_kept(file):
    time_budget.check_preset(file)


def test_a_config_without_networks_is_refused(tmp_path):
    done = launch('--config=sentences', '--minutes=1', f'--workdir={tmp_path / "run"}')
    assert done.returncode == 2 and 'network(width, passes, words)' in done.stderr


def test_a_warm_up_may_be_longer_than_the_timed_pass(text, data, tmp_path):
    typed = {'model.h': 8, 'model.m': 8, 'optimizer.warmup': 300}
    config = config_of(text).unlock()
    config.update_from_flattened_dict(typed)
    choice = time_budget.choose(config, typed, 60, presets.network, data, tmp_path / 'run')
    assert len(data.train) / 512 < 300 < choice.keys['train.max_steps']


@pytest.mark.nightly
def test_a_run_of_some_minutes_is_recorded_and_resumed(text, tmp_path, timed):
    folder = tmp_path / 'run'
    command = ['--config=text', f'--config.corpus.path={text}', '--config.model.h=8', '--config.model.m=8']
    command += ['--config.eval.words=500', '--config.train.valid_words=500', f'--workdir={folder}']
    done = launch(*command, '--minutes=0.0001')
    assert done.returncode == 0, done.stderr
    assert 'Chosen: 8 units' in done.stdout
    record, config = (json.loads((folder / name).read_text()) for name in ('minutes.json', 'config.json'))
    assert record['minutes'] == 0.0001
    assert config['train']['max_steps'] == record['keys']['train.max_steps']
    results = json.loads((folder / 'results.json').read_text())
    assert results['updates'] == record['keys']['train.max_steps']
    again = launch(*command, '--minutes=0.0001')
    assert again.returncode == 0 and json.loads((folder / 'results.json').read_text()) == results
    other = launch(*command, '--minutes=1')
    line = one_line(other.stderr, '--minutes=1.0')
    assert other.returncode == 2 and '0.0001' in line and str(folder) in line
    whole = json.loads((folder / 'minutes.json').read_text())
    for damage in (
        {'minutes': 'x'},
        {'keys': {'train.epochs': 2.5}},
        {'keys': {'model.family': 5}},
        {'reasons': [1]},
        {'reasons': ['\x1b[2J']},
        {'keys': {'model.h': [1]}},
        {'keys': {'model.family': 'somebody.code:Body'}},
        {'keys': {'corpus.name': 'brown'}},
        {'more': 1},
    ):
        (folder / 'minutes.json').write_text(json.dumps(whole | damage))
        with refuses('--workdir'):
            time_budget.read_choice(folder, 0.0001, presets.network)


@pytest.mark.nightly
def test_python_trains_for_some_minutes_as_the_command_does(text, tmp_path, timed):
    changes = {'corpus.path': str(text), 'model.h': 8, 'model.m': 8, 'eval.words': 500, 'train.valid_words': 500}
    run = nplm_jax.train('text', tmp_path / 'run', changes, minutes=0.0001)
    assert run.results['updates'] == run.settings.train.max_steps > 0
    flags = [f'--config.{key}={value}' for key, value in changes.items()]
    done = launch('--config=text', *flags, f'--workdir={run.folder}', '--minutes=0.0001')
    assert done.returncode == 0, done.stderr


def test_a_network_is_timed(text, data, tmp_path):
    changes = presets.network(8, 1, len(data.train)) | {'train.valid_words': 500}
    config = width_choice.apply_keys(config_of(text), changes, {})
    speed = width_choice.measure(experiment.load_settings(config), data, tmp_path)
    assert 0 < speed.update < speed.start and 0 < speed.score < speed.update
