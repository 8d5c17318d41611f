"""Tests the driver of the studies: trained runs, their order, stops, and written results."""

import json
import subprocess
import time

import pytest
from helpers import ROOT

from experiments import origins, points, results, runs, study
from experiments.points import Adaptation, Mixture, Program, Training
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.settings import CHOOSERS, override
from nplm_jax.runs.command_line import load_config

FAKE_LAUNCH = """
import json, pathlib, sys, time
folder = pathlib.Path(next(word.partition('=')[2] for word in sys.argv if word.startswith('--workdir=')))
folder.mkdir(parents=True, exist_ok=True)
(folder / 'words').write_text(' '.join(sys.argv[1:]))
"""
FINISHES = (
    FAKE_LAUNCH
    + """
results = {'perplexity': {'test': 5.0}, 'seconds': 10.0, 'parameters': 7, 'corpus': 'brown', 'vocabulary': 9}
results['commit'] = 'c'
(folder / 'results.json').write_text(json.dumps(results))
"""
)
STOPS = FAKE_LAUNCH + 'import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); time.sleep(60)'
DIES = FAKE_LAUNCH + 'time.sleep(60)'  # before it handles SIGTERM
QUICK = 'configs/brown.py:quick'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, 'ROOT', tmp_path)
    monkeypatch.setattr(runs, 'load_config', lambda config: load_config(f'{ROOT}/{config}'))
    return tmp_path


def training(folder, name, **kwargs):
    return Training(folder / 'results' / f'{name}.json', name, config=QUICK, **kwargs)


def write_cli(folder, lines):
    """Writes an `nplm` command that reads its words and then executes some lines."""
    (folder / 'nplm_jax').mkdir()
    (folder / 'nplm_jax' / '__init__.py').touch()
    words = "verb, *folders, output, _ = sys.argv[1:]; output = pathlib.Path(output.removeprefix('--output='))"
    (folder / 'nplm_jax' / 'cli.py').write_text('\n'.join(['import json, pathlib, sys', words, lines]))


def run(folder, monkeypatch, made, *words):
    monkeypatch.setattr(points, 'STUDIES', {'some': lambda: iter(made)})
    study.run('', define=runs.define, measure=runs.measure, argv=['some', f'--runs={folder}/runs', *words])


def test_every_study_has_its_own_results_and_no_run_has_two_commands():
    made = [point for study_points in points.STUDIES.values() for point in study_points()]
    files = [point.result for point in made]
    assert len(set(files)) == len(files)
    commands = {}
    for point in made:
        for each in (point, *point.needs):
            if isinstance(each, Training):
                assert commands.setdefault(each.name, each.words()) == each.words()


def test_the_words_of_a_training_give_its_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    made = [point for study_points in points.STUDIES.values() for point in study_points()]
    for point in made:
        if isinstance(point, Training):
            config, *flags = point.words()
            keys = dict(flag.removeprefix('--config.').split('=', 1) for flag in flags)
            assert not keys.keys() & set(CHOOSERS), point.name  # launch.py takes them as words of --config only
            expected = override(load_config(point.config), point.keys)
            given = {key: flatten(expected)[key] for key in keys}
            assert override(load_config(config.removeprefix('--config=')), given) == expected, point.name


def test_a_studys_own_program_gets_the_folder_of_its_runs_and_the_file_of_its_results(folder, monkeypatch):
    lines = 'import json, sys', 'words = dict(word.split("=") for word in sys.argv[1:])'
    write = 'open(words["--output"], "w").write(json.dumps(words))'
    (folder / 'own_program.py').write_text('\n'.join([*lines, write]))
    point = Program(folder / 'results' / 'one.json', 'own', command=('own_program', '--run=one'))
    run(folder, monkeypatch, [point])
    written = json.loads(point.result.read_text())
    assert written['--run'] == 'one' and written['--workdir'] == f'{folder}/runs/own'


def test_a_result_is_written_with_the_changed_keys_and_the_cost_of_the_process(folder, monkeypatch):
    (folder / 'launch.py').write_text(FINISHES)
    point = training(folder, 'one', keys={'seed': 2, 'model.m': 7})
    run(folder, monkeypatch, [point])
    kept = json.loads(point.result.read_text())
    assert kept['perplexity'] == {'test': 5.0}
    assert kept['settings']['model.m'] == 7 and 'seed' not in kept['settings']
    assert {'processor_seconds', 'process_seconds', 'load'} <= kept.keys()
    words = (folder / 'runs' / 'one' / 'words').read_text()
    assert words == f'--config={QUICK} --config.seed=2 --config.model.m=7 --workdir={folder}/runs/one'


def test_what_is_missing_is_trained_the_shortest_first(folder, monkeypatch, capsys):
    (folder / 'launch.py').write_text(FINISHES)
    made = [training(folder, name) for name in ('new', 'long', 'short', 'good')]
    (folder / 'results').mkdir()
    for name, seconds in {'long': 90.0, 'short': 5.0, 'good': 1.0}.items():
        (folder / 'results' / f'{name}.json').write_text(json.dumps({'seconds': seconds}))
    faulty = {made[i].result: ['no versions'] for i in (1, 2)}
    monkeypatch.setattr(runs.audit, 'faults', lambda found: faulty if found else {})
    assert [point.name for point in runs_due(monkeypatch, made, False)] == ['new']
    assert [point.name for point in runs_due(monkeypatch, made, True)] == ['short', 'long', 'new']
    run(folder, monkeypatch, made, '--repeat', '--only=*o*')
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[:2]] == ['short', 'long']
    assert 'perplexity' in json.loads(made[1].result.read_text()) and not made[0].result.exists()


@pytest.mark.parametrize('is_mixture', [False, True])
def test_a_rejected_run_that_has_ended_is_not_called_repeated(folder, monkeypatch, capsys, is_mixture):
    (folder / 'launch.py').write_text(FINISHES)
    needed = training(folder, 'one')
    point = Mixture(folder / 'results' / 'both.json', 'both', (needed,)) if is_mixture else needed
    trained = runs.train(needed, folder / 'runs')  # its results lack the versions
    results.write(point.result, trained)
    monkeypatch.setattr(runs.audit, 'read_all', lambda: {point.result: origins.of(trained)})
    with pytest.raises(SystemExit, match='^1$'):
        run(folder, monkeypatch, [point], '--repeat')
    assert json.loads(point.result.read_text()) == trained
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f'{folder}/runs/one: is rejected') and line.endswith('delete it to train it again')


def test_a_result_written_again_keeps_the_cost_of_its_run(folder, monkeypatch):
    (folder / 'launch.py').write_text(FINISHES)
    point = training(folder, 'one')
    first = runs.train(point, folder / 'runs')
    results.write(point.result, first)
    assert runs.train(point, folder / 'runs') == first
    results.write(point.result, {**first, 'perplexity': {'test': 6.0}})  # of another run
    assert 'load' not in runs.train(point, folder / 'runs')


def runs_due(monkeypatch, made, repeat):
    monkeypatch.setattr(points, 'STUDIES', {'some': lambda: iter(made)})
    return runs.due(['some'], '*', repeat)


def test_a_finished_run_of_another_config_is_not_the_result(folder, monkeypatch):
    (folder / 'launch.py').write_text(FINISHES)
    point = training(folder, 'one')
    first = runs.train(point, folder / 'runs')
    assert 'process_seconds' in first and 'process_seconds' not in runs.train(point, folder / 'runs')
    (folder / 'launch.py').write_text('raise SystemExit(2)')  # as for a folder that belongs to another config
    with pytest.raises(subprocess.CalledProcessError):
        runs.train(point, folder / 'runs')


def test_a_mixture_adds_the_seconds_and_the_sizes_of_its_models(folder, monkeypatch):
    (folder / 'launch.py').write_text(FINISHES)
    write_cli(
        folder,
        """
models = [{'name': name, 'weight': 0.5} for name in folders]
mixtures = {'learned': {'valid': 85.0, 'test': 75.0}, 'equal': {'valid': 86.0, 'test': 76.0}}
output.write_text(json.dumps({'models': models, 'mixtures': mixtures}))
""",
    )
    both = Mixture(folder / 'results' / 'both.json', 'both', (training(folder, 'one'), training(folder, 'two')))
    run(folder, monkeypatch, [both])
    kept = json.loads(both.result.read_text())
    assert (kept['seconds'], kept['parameters'], kept['vocabulary']) == (20.0, 14, 9)
    assert kept['perplexity'] == {'valid': 85.0, 'test': 75.0} and kept['family'] == 'mixture'
    assert [(run['commit'], run['versions']) for run in kept['trained']] == [('c', {})] * 2


def test_adaptive_models_are_made_from_their_runs_and_record_the_origins_of_these(folder, monkeypatch):
    (folder / 'launch.py').write_text(FINISHES)
    write_cli(folder, "output.write_text(json.dumps({'rows': [{'name': name} for name in (verb, *folders)]}))")
    needs = training(folder, 'one'), training(folder, 'two')
    run(folder, monkeypatch, [point := Adaptation(folder / 'results' / 'adapted.json', 'adapted', needs)])
    kept = json.loads(point.result.read_text())
    assert [row['name'] for row in kept['rows']] == ['adapt', f'{folder}/runs/one', f'{folder}/runs/two']
    assert [run['commit'] for run in kept['trained']] == ['c', 'c']


def test_a_mixture_is_told_to_stop_before_the_time(folder, monkeypatch):
    monkeypatch.setattr(runs, '_SAVING', 1)
    (folder / 'launch.py').write_text(FINISHES)
    write_cli(folder, "output.with_suffix('.started').touch(); import time; time.sleep(60)")
    both = Mixture(folder / 'results' / 'both.json', 'both', (training(folder, 'one'), training(folder, 'two')))
    started = time.time()
    with pytest.raises(TimeoutError):
        runs.train(both, folder / 'runs', until=started + 15)
    assert (folder / 'runs' / 'both.started').exists() and time.time() < started + 45


@pytest.mark.parametrize('launch', [STOPS, DIES], ids=('saves', 'dies'))
def test_a_training_is_told_to_stop_before_the_time_and_keeps_no_result(folder, monkeypatch, launch):
    monkeypatch.setattr(runs, '_SAVING', 1)
    (folder / 'launch.py').write_text(launch)
    started = time.time()
    with pytest.raises(TimeoutError):
        runs.launch(['--config=x'], folder / 'run', until=started + 3)
    assert time.time() < started + 30


def test_a_training_that_fails_is_named_and_the_others_are_trained(folder, monkeypatch, capsys):
    fails = "if folder.name == 'bad': raise SystemExit(1)\n"
    (folder / 'launch.py').write_text(FAKE_LAUNCH + fails + FINISHES.removeprefix(FAKE_LAUNCH))
    made = [training(folder, name) for name in ('bad', 'fine')]
    with pytest.raises(SystemExit, match='^1$'):
        run(folder, monkeypatch, made)
    assert made[1].result.exists() and not made[0].result.exists()
    assert 'bad' in capsys.readouterr().err


def test_a_time_that_is_too_near_is_one_line(capsys):
    soon = time.strftime('%H:%M', time.localtime(time.time() + 60))
    with pytest.raises(SystemExit) as ended:
        study.run('', define=runs.define, measure=runs.measure, argv=[f'--until={soon}'])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith('--until')


def test_runs_that_have_no_committed_result_are_missing_only_on_request(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        points, 'STUDIES', {name: lambda name=name: iter([training(folder, name)]) for name in ('a', 'use')}
    )
    monkeypatch.setattr(results, 'study_of', lambda path: path.stem)
    for words, names in (([], ['a']), (['use'], ['use'])):
        study.run('', define=runs.define, measure=runs.measure, argv=[*words, '--list', f'--runs={folder}'])
        assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == names


def test_an_empty_list_says_that_nothing_is_missing(folder, monkeypatch, capsys):
    run(folder, monkeypatch, [], '--list')
    assert capsys.readouterr().out == 'nothing is missing\n'
