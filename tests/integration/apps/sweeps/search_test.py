"""Tests that the trials of a search are runs, that searches resume, and that errors name their cause."""

import contextlib
import json
import pathlib
import re
import types

import pytest
from helpers import launch, one_line
from search_studies import ROW, STUDY, TrialState, ask, opened, start, trials

from nplm_jax.apps.sweeps import search, search_storage
from nplm_jax.runs import workdir
from nplm_jax.utils.errors import BadInput


@pytest.fixture
def study(tmp_path):
    (tmp_path / 'study.py').write_text(STUDY)
    return tmp_path / 'study.py'


@pytest.mark.nightly
def test_a_search_has_as_many_trials_as_asked_for_and_the_same_command_adds_only_what_is_missing(study):
    done = start(study, 3)
    assert done.returncode == 0, done.stderr
    table = (study.parent / 'runs' / 'table.md').read_text()
    assert table in done.stdout and len(ROW.findall(table)) == 3
    values = [trial.value for trial in trials(study)]
    perplexity = [json.loads(p.read_text())['perplexity'] for p in sorted(study.parent.glob('runs/*/results.json'))]
    assert [each['valid'] for each in perplexity] == pytest.approx(
        [v for v, t in zip(values, trials(study)) if t.state == 1]
    )
    again = start(study, 3)
    assert again.returncode == 0 and again.stdout.endswith(done.stdout[done.stdout.index('| trial') :])
    assert 'Output directory' not in again.stdout
    assert start(study, 4).returncode == 0 and len(trials(study)) == 4
    assert (
        len({trial.params['model.h'] * 1000 + trial.params['optimizer.learning_rate'] for trial in trials(study)}) == 4
    )


def test_no_trial_is_the_best_where_their_words_differ(study):
    study.write_text(
        STUDY.replace("'train.epochs': 4", "'train.epochs': 1, 'corpus.max_vocabulary': 10 - 3 * trial.number")
    )
    done = start(study, 2)
    assert done.returncode == 0, done.stderr
    assert len(ROW.findall(done.stdout)) == 2
    assert not re.search('^Best', done.stdout, re.MULTILINE)
    assert not list(study.parent.glob('runs/*.png'))


def test_the_printed_command_trains_the_best_trial_again(study, tmp_path):
    done = start(study, 2)
    best = re.search(r'Best on validation: (\S+); to train it again:\n  (.*)', done.stdout)
    words = best[2].split()
    assert words[1].endswith('launch.py') and launch(*words[2:], f'--workdir={tmp_path}/again').returncode == 0
    first, again = (json.loads((pathlib.Path(p) / 'results.json').read_text()) for p in (best[1], tmp_path / 'again'))
    assert again['perplexity'] == first['perplexity'] and first['command'].startswith(best[2])
    assert (study.parent / 'runs' / 'slices.png').exists() and (study.parent / 'runs' / 'importance.png').exists()


def test_a_trial_that_diverges_or_is_refused_counts_and_the_others_run(study):
    rate = "trial.suggest_float('optimizer.learning_rate', 1e-3, 1.0, log=True)"
    text = STUDY.replace(rate, '[0.5, 1e30, 0.5][trial.number]')
    study.write_text(
        text.replace("'train.epochs': 4", "'train.batch_size': [4, 4, 14][trial.number], 'train.epochs': 4")
    )
    done = start(study, 3)
    assert done.returncode == 0 and [trial.state for trial in trials(study)][1:] == [TrialState.PRUNED] * 2
    assert [trial.user_attrs.get('state') for trial in trials(study)] == [None, 'diverged', 'refused']
    assert 'trial-0001: ' in done.stderr and 'trial-0002: train.batch_size=14: ' in done.stderr


def test_a_trial_of_a_killed_process_is_run_again_at_once(study):
    start(study, 1)
    with opened(f'sqlite:///{study.parent}/runs/search.db') as made:
        left = ask(made)  # and its process has ended
    assert start(study, 2).returncode == 0
    first, failed, second = trials(study)
    assert failed.state == TrialState.FAIL and second.system_attrs['failed_trial'] == failed.number == left
    assert first.state.is_finished() and second.state != TrialState.FAIL


@pytest.mark.parametrize(
    'error,code',
    [(BadInput('--workdir', 'cannot be written', value='x'), 2), (OSError(28, 'No space left on device'), 1)],
)
def test_a_failure_of_the_machine_ends_the_search_and_the_same_command_continues_the_trial(
    study, monkeypatch, error, code
):
    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(search.experiment, 'run', fail)
        for _ in range(search_storage.MAX_RETRIES + 1):  # it is not a retry
            done = start(study, 1)
            assert (
                done.returncode == code
                and str(getattr(error, 'strerror', error)) in done.stderr
                and done.stderr.count('\n') == 1
            )
    assert start(study, 1).returncode == 0
    *failed, last = trials(study)
    assert {trial.state for trial in failed} == {TrialState.FAIL} and last.state == TrialState.COMPLETE
    assert {json.dumps(trial.params) for trial in failed} == {json.dumps(last.params)}


def test_a_trial_waits_for_the_process_that_still_holds_its_folder(study, monkeypatch):
    holder, run = contextlib.ExitStack(), search.experiment.run
    (folder := study.parent / 'runs' / 'trial-0000').mkdir(parents=True)
    holder.enter_context(workdir.locked(folder))
    (study.parent / 'runs' / 'trial-0000').rename(study.parent / 'held')
    monkeypatch.setattr(search, 'time', types.SimpleNamespace(sleep=lambda _: holder.close()))

    def run_held(settings, folder, *rest):
        if not folder.exists():
            (study.parent / 'held').rename(folder)
        return run(settings, folder, *rest)

    monkeypatch.setattr(search.experiment, 'run', run_held)
    done = start(study, 1)
    assert done.returncode == 0 and [trial.state for trial in trials(study)] == [TrialState.COMPLETE]
    assert "trial-0000': " in done.stderr and done.stderr.count('\n') == 1


def test_a_database_that_holds_another_study_is_one_line(study):
    assert start(study, 1).returncode == 0
    done = start(study, 2, '--config.model.m=3')
    assert done.returncode == 2 and re.search(r'\bsentences\b.*model\.m is 2 .*\b3\b', done.stderr)
    study.write_text(STUDY.replace('2, 9', '2, 8'))
    done = start(study, 2)
    assert done.returncode == 2 and 'search()' in done.stderr
    study.write_text(STUDY)
    (trial,) = study.parent.glob('runs/trial-*')
    trial.rename(study.parent / 'moved')
    done = start(study, 1)
    assert done.returncode == 2
    one_line(done.stderr, f"--workdir='{study.parent}/runs'")
    (study.parent / 'moved').rename(trial)
    (study.parent / 'runs' / 'search.db').unlink()
    done = start(study, 2)
    assert done.returncode == 2
    one_line(done.stderr, f"--workdir='{study.parent}/runs'")
