"""Tests that trials are runs, that searches resume, and that a lost process costs at most one trial."""

import contextlib
import json
import math
import re
import signal
import sys

import pytest
from helpers import launch, numbers, one_line, refuses

from configs import brown, sentences
from configs import text as text_config
from nplm_jax.cli import launch as launch_lib
from nplm_jax.config.registry import KINDS
from nplm_jax.reporting.shell import hide_passwords
from nplm_jax.runs import run_inputs
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.utils.errors import BadInput

sa = pytest.importorskip('sqlalchemy')
from search_studies import ROW, STUDY, TrialState, optuna, start, trials  # noqa: E402

from nplm_jax.apps.sweeps import search, search_space, search_storage  # noqa: E402


@pytest.fixture
def study(tmp_path):
    (tmp_path / 'study.py').write_text(STUDY)
    return tmp_path / 'study.py'


def test_the_search_of_brown_is_a_point_of_the_rows_of_the_paper_s_kind():
    for row in ('quick', 'mlp1', 'mlp9', 'large'):
        space = search_space.load(brown.__file__, brown.get_config(row))
        trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3)).ask()
        point = space.point(trial)
        assert point.settings.model.h == trial.params['model.h'] and point.settings.train.evaluate_every == 0


def test_a_pruned_trial_is_saved_and_trained_to_its_end_by_the_printed_command(study, monkeypatch):
    make, at_second = optuna.create_study, optuna.pruners.ThresholdPruner(upper=0, n_warmup_steps=2)  # validation
    monkeypatch.setattr(optuna, 'create_study', lambda **options: make(**options | {'pruner': at_second}))
    done = start(study, 1)
    assert done.returncode == 0
    assert ROW.findall(done.stdout) == [('trial-0000', 'pruned')]
    assert list(trials(study)[0].intermediate_values) == [1, 2] and trials(study)[0].state == TrialState.PRUNED
    command = re.search(r'trial-0000: .*\b6\b.*: (\S*python\S* .*)', done.stdout)[1]
    resumed = launch(*command.split()[2:])
    assert resumed.returncode == 0 and ['2.00', '6', '12'] in map(numbers, resumed.stdout.splitlines())
    assert json.loads((study.parent / 'runs' / 'trial-0000' / 'results.json').read_text())['updates'] == 12


def test_a_trial_is_refused_if_its_values_make_another_key_impossible(study):
    study.write_text(STUDY.replace("'train.epochs': 4", "'train.epochs': [1, 4][trial.number]"))
    done = start(study, 2, '--config.optimizer.warmup=3')
    assert done.returncode == 0 and 'trial-0000: optimizer.warmup=3: ' in done.stderr
    assert [trial.user_attrs.get('state') for trial in trials(study)] == ['refused', None]


@pytest.mark.parametrize('key,code', [('model.n', 0), ('output.kind', 0), ('corpus.path', 2), ('parallel.data', 2)])
def test_a_key_that_the_point_does_not_set_is_its_fault_unless_all_points_share_it(study, monkeypatch, key, code):
    def refuse(*_):
        raise BadInput(key, 'must be another', value='x')

    monkeypatch.setattr(search.experiment, 'run', refuse)
    done = start(study, 1)
    assert done.returncode == code and done.stderr.count('\n') == 1 and f"{key}='x': " in done.stderr
    assert [trial.user_attrs.get('state') for trial in trials(study)][:1] == ([None] if code else ['refused'])


def test_a_trial_that_was_stopped_goes_on_in_its_folder(study, monkeypatch):
    looks, report = [], search.Report.__call__

    def stop_once(self, progress, schedule):
        looks.append(progress.step)
        if len(looks) == 2:
            signal.raise_signal(signal.SIGTERM)
        return report(self, progress, schedule)

    monkeypatch.setattr(search.Report, '__call__', stop_once)
    done = start(study, 1)
    assert done.returncode == 143 and '--search=1' in done.stderr.splitlines()[-1]
    assert start(study, 1).returncode == 0 and looks == [3, 6, 9, 12]
    first, second = trials(study)
    assert (first.state, second.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert second.params == first.params and list(second.intermediate_values) == [1, 2, 3, 4]
    assert [path.name for path in study.parent.glob('runs/trial-*')] == ['trial-0000']


def test_a_process_that_was_suspended_leaves_its_trial_to_the_one_that_took_it(study, monkeypatch):
    looks, report = [], search.Report.__call__

    def lose_once(self, progress, schedule):
        looks.append(progress.step)
        if len(looks) == 2:  # the action of another process after the grace period
            made = self.trial.study
            made.tell(self.trial.number, state=TrialState.FAIL)
            search_storage.retry(made, made.get_trials()[self.trial.number])
        return report(self, progress, schedule)

    monkeypatch.setattr(search.Report, '__call__', lose_once)
    done = start(study, 1)
    assert done.returncode == 0
    one_line(done.stderr, 'trial-0000')
    first, second = trials(study)
    assert (first.state, second.state) == (TrialState.FAIL, TrialState.COMPLETE) and looks == [3, 6, 9, 12]


@pytest.mark.parametrize(
    'body,message',
    [
        ("return {'model.hh': 3}", '--search: model.hh:'),
        ("return {'model.n': 1}", '--search: model.n=1:'),
        ("return {'model.h': trial.suggest_int('h', 9, 2)}", '--search:'),
        ("raise RuntimeError('boom')", '--search:'),
        (
            "return {'model.h': 3}",
            '--search:',
        ),
        (
            "return {'model.h': trial.suggest_categorical('h', [(3, 4), (5, 6)])[0]}",
            '--search:',
        ),
        ('return 3', '--search: 3:'),
    ],
)
def test_a_search_space_that_is_none_is_one_line_before_anything_starts(study, body, message):
    study.write_text(STUDY.partition('def search')[0] + f'def search(trial):\n    {body}\n')
    done = start(study, 2)
    assert done.returncode == 2 and done.stderr.startswith(message.replace('STUDY', str(study))), done.stderr
    assert done.stderr.count('\n') == 1 and not (study.parent / 'runs').exists()


@pytest.mark.parametrize(
    'flags,message',
    [
        (['--search=0'], "--search='0':"),
        (['--search=2', '--sweep'], '--search=2:'),
        (['--search=2', '--grid=model.h=3,4'], '--search=2:'),
        (['--search=2', '--vectorize'], '--search=2:'),
        (['--storage=postgresql://localhost/x'], '--storage:'),
        (['--search=2', '--storage=me:secret@host'], '--storage:'),
        (['--search=2', '--storage=postgresql://me:a@secret@host/x'], '--storage:'),
        (['--search=2', '--storage=postgresql://u:p@ss/secret@host/db'], '--storage:'),
        (['--search=2', '--storage=postgresql://host=h password=secret'], '--storage:'),
        (['--search=2', '--storage=mysql://me:secret@host/x'], "--storage='mysql://me@host/x':"),
        (['--search=2', '--storage=postgresql://me:secret@localhost:1/x'], "--storage='postgresql+psycopg://me@localhos"),
        (['--search=2', '--launcher=local', '--jobs=2'], '--jobs=2:'),
        (['--search=2', '--jobs=2'], '--jobs=2:'),
        (['--search=2', '--config.model.h=4'], '--config.model.h:'),
        (['--search=2', '--launcher=local', '--process_id=1'], '--process_id=1:'),
        (['--search=2', '--launcher=local', '--heartbeat=20'], '--search=2:'),
    ],
)  # fmt: skip
def test_wrong_flags_are_one_line_without_a_password(study, flags, message):
    done = launch(f'--config={study}', f'--workdir={study.parent}/runs', *flags)
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count('\n') == 1, done.stderr
    assert 'secret' not in done.stdout + done.stderr and not list(study.parent.glob('runs/trial*'))


def test_workers_get_the_scheduler(study, monkeypatch):
    words = []
    monkeypatch.setattr(launch_lib.scheduler, 'use', contextlib.nullcontext)
    monkeypatch.setattr(search.launchers, 'run', lambda jobs, *_: words.extend(jobs[0].command))
    done = start(study, 2, '--launcher=local', '--scheduler=tcp://host:1')
    assert done.returncode == 1 and numbers(done.stderr)[:2] == ['0', '2']
    assert '--scheduler=tcp://host:1' in words and '--process_id=0' in words


def test_what_is_missing_is_one_line(study, monkeypatch):
    monkeypatch.setitem(sys.modules, 'psycopg', None)
    line = one_line(start(study, 2, '--storage=postgresql://me:secret@host/x').stderr, '--storage')
    assert "='postgresql+psycopg://me@host/x': " in line and 'pip install "nplm-jax[search]"' in line
    done = launch('--config=configs/sentences.py', '--search=2', f'--workdir={study.parent}/runs')
    assert done.returncode == 2 and 'configs/sentences.py' in one_line(done.stderr, '--search')
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    assert 'pip install "nplm-jax[search]"' in one_line(start(study, 2).stderr, '--search')


def test_a_database_that_stops_answering_is_a_failure_of_the_system_without_a_password(study):
    url = search_storage.find_url(None, study.parent)
    with pytest.raises(OSError, match='search.db'), search_storage.opened(url) as storage:
        storage.engine.dispose()
        (study.parent / 'search.db').write_bytes(b'')
        storage.get_all_studies()


def test_a_process_that_makes_the_tables_at_the_same_time_as_another_tries_again(study, monkeypatch):
    make, errors = optuna.storages.RDBStorage, [sa.exc.IntegrityError('CREATE TYPE', {}, Exception('duplicate key'))]

    def make_late(*args, **options):
        if errors:
            raise errors.pop()
        return make(*args, **options)

    monkeypatch.setattr(optuna.storages, 'RDBStorage', make_late)
    with search_storage.opened(search_storage.find_url(None, study.parent)) as storage:
        assert storage.get_all_studies() == [] and not errors


def test_commands_have_no_password():
    shown = hide_passwords(
        "launch.py --storage 'postgresql://me:a:b@c@host/x?PassWord=y&sslmode=require' --config.name=a:b@c"
    )
    assert shown == 'launch.py --storage HIDDEN --config.name=a:b@c'  # not a plain URL


def test_a_study_is_not_continued_with_another_text_file_or_plugin(study, monkeypatch):
    space = search_space.load(str(study), sentences.get_config())
    searching, made = search.Search(space, study.parent, 'sqlite://', 1, ()), optuna.create_study()
    text = run_inputs.text_digest(SharedCorpus(space.settings).data)
    monkeypatch.setattr(run_inputs, 'model_digests', lambda settings: {'model.family': 'now'})
    for recorded in ({**text, 'model.family': 'then'}, {'text': 'another', 'model.family': 'now'}):
        made.set_user_attr('inputs', recorded)
        with refuses('--workdir'):
            searching._finish(made)
    assert not made.trials


def test_the_command_of_a_trial_is_one_that_the_command_line_takes(study):
    searches = search_space.Space('text', lambda trial: {}, text_config.get_config('lstm,adam'))
    words = ('launch.py', '--config=text:lstm,adam', '--config.corpus.path=x')
    made = search.Search(searches, study.parent, '', 1, words)._command_of(
        {'optimizer.learning_rate': 0.5}, '--workdir=y'
    )
    flags = ['--config=text:lstm,adam', '--config.corpus.path=x', '--config.optimizer.learning_rate=0.5', '--workdir=y']
    assert made.split()[2:] == flags


@pytest.mark.parametrize('point', [{'optimizer.name': 'adam'}, {'model.h': 7, 'model.family': 'lstm'}])
def test_a_search_that_chooses_components_is_refused(point):
    space = search_space.Space('text', lambda trial: point, text_config.get_config())
    with refuses('--search') as caught:
        space.point(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask())
    assert all(key in caught.value.problem for key in point.keys() & KINDS.keys())


@pytest.mark.parametrize('every', [7, 1000])
@pytest.mark.parametrize('steps_per_epoch', [1560, 1563])
def test_validations_are_numbered_consecutively(steps_per_epoch, every):
    schedule = Schedule(steps_per_epoch, 3 * steps_per_epoch, every, 500, 100, steps_per_execution=20)
    reports, before = [], 0
    study = optuna.create_study()
    trial = study.ask()
    report = search.Report(trial, {})
    while before < schedule.total_steps:
        now = schedule.next_boundary(before)
        if schedule.due(before, now).evaluate:
            reports.append(now)
            report(Progress(step=now, valid_nll=1 / now, seconds=0.0), schedule)
        before = now
    values = study.get_trials()[0].intermediate_values
    assert [*values] == [*range(1, len(reports) + 1)]
    assert [*values.values()] == pytest.approx([math.exp(1 / step) for step in reports])
