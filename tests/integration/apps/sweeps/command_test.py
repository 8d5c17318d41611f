"""Tests that `nplm sweep` gives the same results as launch.py from any folder."""

import re

import pytest
from absl import flags
from helpers import ROOT, call_main

from nplm_jax.apps.sweeps import sweep_flags
from nplm_jax.cli import __main__ as cli

SHORT = '--config.train.epochs=2', '--config.train.evaluate_every=0'


def nplm(folder, *words):
    return call_main(lambda: cli.main(list(words)), ['nplm', *words], folder)


def test_a_sweep_over_words(tmp_path):
    done = nplm(tmp_path, 'sweep', 'sentences', 'model.h=2,3', *SHORT, '--workdir=sweep')
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / 'sweep').iterdir()} == {
        'h_2',
        'h_3',
        'table.md',
        'table.csv',
        'table.png',
    }


def test_the_points_of_a_sweep_as_processes(tmp_path):
    pytest.importorskip('submitit')
    done = nplm(tmp_path, 'sweep', 'sentences', 'seed=2', *SHORT, '--workdir=jobs', '--launcher=local')
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / 'jobs' / 'seed_2' / 'results.json').exists()


@pytest.mark.parametrize(
    'words,message',
    [
        (['sweep', 'sentences'], '--sweep: '),
        (['sweep', 'sentences', '--grid=model.hh=3'], '--grid: model.hh'),
        (['sweep', 'sentences', '--minutes=2'], '--minutes: cannot be used with nplm sweep'),
        (['sweep', 'sentences', 'model.hh=3'], '--grid: model.hh'),
        (['sweep', 'sentences', '--grid'], '--grid: '),
    ],
)
def test_a_mistake_is_one_line(tmp_path, words, message):
    done = nplm(tmp_path, *words)
    assert (done.returncode, done.stderr.count('\n')) == (2, 1), done.stderr
    assert done.stderr.startswith(message)


def test_help_names_every_flag():
    own = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(sweep_flags)}
    text = ''.join(nplm(ROOT, name, '--help').stdout for name in ('train', 'sweep'))
    hidden = {'sweep', 'grid', 'configs'}  # the equivalent of `nplm sweep`
    assert not {name for name in own - hidden if not re.search(rf'--{name}\b', text)}


def test_flags_and_axes_of_a_sweep_have_any_order(tmp_path):
    words = ['sentences', '--grid', 'seed=1,2', '--workdir', 'out', 'model.h=3,4', '--vectorize', '--print_config']
    done = nplm(tmp_path, 'sweep', *words)
    points = re.findall(r"^point \d: {'seed': (\d), 'model.h': (\d), ", done.stdout, re.MULTILINE)
    assert points == [('1', '3'), ('1', '4'), ('2', '3'), ('2', '4')], done.stderr
    done = nplm(tmp_path, 'sweep', 'sentences', '--launcher', 'local', 'seed=1,2', '--print_config')
    assert re.findall(r"^point \d: {'seed': (\d), ", done.stdout, re.MULTILINE) == ['1', '2'], done.stderr


def test_several_configs_have_no_axes(tmp_path):
    done = nplm(tmp_path, 'sweep', 'sentences', 'sentences:add_delta', 'seed=1,2')
    assert done.returncode == 2 and done.stderr.startswith('--configs='), done.stderr
