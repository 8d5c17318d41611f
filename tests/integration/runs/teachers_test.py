"""Tests `output.teacher`: teachers are identified by name, digest and words."""

import json
import shutil

import numpy as np
import pytest
from helpers import refuses

import nplm_jax
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, run_inputs
from nplm_jax.utils.errors import BadInput

FEW = {'train.epochs': 3, 'train.evaluate_every': 3}


def train(folder, teacher='', **changes):
    keys = {key.replace('__', '.'): value for key, value in changes.items()}
    return nplm_jax.train('sentences', folder, {**FEW, 'output.teacher': str(teacher), **keys})


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A finished run whose name contains a comma."""
    return train(tmp_path_factory.mktemp('runs') / 'first,h=5').folder


def test_each_run_of_a_chain_learns_from_the_one_before(trained, tmp_path):
    second = train(tmp_path / 'second', trained, model__family='lstm', model__bptt_length=4, model__h=2)
    third = train(tmp_path / 'third', f'{trained},{second.folder}', output__kind='sampled')
    alone = train(tmp_path / 'alone', output__kind='sampled')
    params = [experiment.load(run.folder).model.params['U_VxK'] for run in (third, alone)]
    assert not np.allclose(*params)
    record = json.loads((third.folder / catalog.CORPUS).read_text())
    assert record['teacher'] == run_inputs.teacher_digest(third.settings)[run_inputs.TEACHER]
    assert 'teacher' not in json.loads((alone.folder / catalog.CORPUS).read_text())


def test_a_student_goes_on_only_with_the_teachers_that_it_began_with(trained, tmp_path):
    teacher, student = tmp_path / 'teacher', tmp_path / 'student'
    shutil.copytree(trained, teacher)
    train(student, teacher)
    shutil.rmtree(teacher)
    train(student, teacher)  # a finished run no longer needs its teacher
    train(teacher, seed=2)
    with refuses('--workdir'):
        train(student, teacher)
    (student / catalog.RESULTS).unlink()
    with refuses('--workdir'):
        train(student, teacher)


@pytest.mark.parametrize(
    'changes,key',
    [
        ({'output__teacher_weight': 1.5}, 'output.teacher_weight'),
        ({'output__kind': 'nce'}, 'output.teacher'),
        ({'output__kind': 'two_level'}, 'output.teacher'),
        ({'parallel__model': 2}, 'parallel.model'),
        ({'corpus__boundary_tokens': False}, 'output.teacher'),
        ({'corpus__context': 'line'}, 'corpus.context'),
    ],
)
def test_what_a_teacher_does_not_fit_is_one_line(trained, tmp_path, changes, key):
    with pytest.raises(BadInput, match=f'^{key}=') as caught:
        train(tmp_path / 'student', trained, **changes)
    assert '\n' not in str(caught.value) and not (tmp_path / 'student').exists()


def test_a_weight_needs_a_teacher(trained, tmp_path):
    with refuses('output.teacher_weight'):
        train(tmp_path / 'student', output__teacher_weight=0.3)


def test_long_names_are_no_path_and_a_teacher_that_cannot_be_read_is_named(trained, tmp_path):
    names = [str(shutil.copytree(trained, tmp_path / (letter * 190))) for letter in 'ab']
    assert [str(path) for path in catalog.split_runs('output.teacher', ','.join(names))] == names
    damaged = shutil.copytree(trained, tmp_path / 'damaged')
    (damaged / catalog.CONFIG).write_text('{')
    with refuses('output.teacher') as caught:
        train(tmp_path / 'student', damaged)
    assert 'delete' not in str(caught.value)


def test_a_teacher_that_cannot_teach_is_one_line(trained, tmp_path):
    counted = nplm_jax.train('sentences', tmp_path / 'counted', {'model.family': 'interpolated', 'model.n': 3}).folder
    (tmp_path / 'begun').mkdir()
    refused = [tmp_path / 'none', f'{trained},{tmp_path}/none', tmp_path / 'begun']  # not a finished run
    refused += [f'{trained},{trained}', counted, tmp_path / 'student']  # twice; by counting; the student
    for name in refused:
        with refuses('output.teacher') as caught:
            train(tmp_path / 'student', name)
        assert '\n' not in str(caught.value) and not (tmp_path / 'student').exists()
