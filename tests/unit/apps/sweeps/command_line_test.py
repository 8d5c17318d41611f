"""Tests the sweep flags of `launch.py`, and the help of `nplm sweep`."""

import pytest
from helpers import ROOT, call_main, launch

from nplm_jax.cli import __main__ as cli

WRONG = [
    (['--grid=model.m'], "--grid='model.m':"),
    (['--grid', 'model.m=2,x'], "--grid: model.m='x':"),
    (['--grid', 'model.dropout=0,x'], "--grid: model.dropout='x':"),
    (['--grid', 'model.m=2', 'model.k=3'], '--grid: model.k:'),
    (['--grid', 'model.m=2', 'model.m=3'], "--grid='model.m=3':"),
    (['--grid=model.direct=1'], "--grid: model.direct='1':"),
    (['--grid=model.m=3,3'], '--grid:'),
    (['--grid=model.n=0,1'], '--grid: model.n=0:'),
    (['--grid=seed=1', '--sweep'], '--sweep:'),
    (['--sweep', 'seed=1,2'], '--sweep:'),
    (['--grid=seed=1,2', '--config.seed=3'], "--grid='seed=1,2':"),
    (['--heartbeat=20'], '--heartbeat=20:'),
    (['--sweep=2'], "--sweep='2':"),
    (['--vectorize'], '--vectorize:'),
    (['--grid', 'model.layers=3,4'], '--grid: model.layers:'),
    (['--grid', 'optimizer.name=adam'], "--grid='optimizer.name=adam':"),
    (['--minutes=1', '--sweep'], '--minutes=1.0:'),
    (['--minutes=1', '--search=2'], '--search=2:'),
    (['--distributed', '--sweep'], '--sweep:'),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, tmp_path):
    done = launch(f'--workdir={tmp_path / "run"}', '--config=configs/sentences.py', *arguments)
    assert done.returncode == 2 and not (tmp_path / 'run').exists()
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_mistyped_flag_is_answered_by_the_nearest(tmp_path):
    done = launch('--config=sentences', '--vectorise', '--print_config', cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith('; did you mean --vectorize?\n'), done.stderr


def test_the_points_are_printed_with_the_resolved_config(tmp_path):
    flags = f'--config={ROOT}/configs/text.py', '--config.model.h=7', '--print_config', '--grid', 'seed=1,2'
    done = launch(*flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "point 2: {'seed': 2, " in done.stdout.splitlines()[-1] and not [*tmp_path.iterdir()]


def test_the_help_is_shown_after_a_config_too():
    helps = [
        call_main(lambda words=words: cli.main(words), ['nplm', *words])
        for words in (['sweep', '--help'], ['sweep', 'brown', '--workdir=x', '--help'])
    ]
    assert helps[0].returncode == helps[1].returncode == 0 and helps[0].stdout == helps[1].stdout


def test_a_point_of_a_sweep_with_a_folder_that_is_refused_stops_it_at_once(tmp_path):
    (tmp_path / 'sweep.py').write_text(
        f'import sys\nsys.path.insert(0, {str(ROOT)!r})\n'
        'from configs.sentences import get_config\n\n\ndef sweep():\n'
        "    yield {'seed': 2}\n    yield {'name': 'a[1]'}\n"
    )
    done = launch(f'--config={tmp_path}/sweep.py', '--sweep', f'--workdir={tmp_path}/runs')
    assert (done.returncode, done.stderr.splitlines()[0][: len(f"--workdir='{tmp_path}/runs/a[1]': ")]) == (
        2,
        f"--workdir='{tmp_path}/runs/a[1]': ",
    )
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / 'runs').exists()
