import pytest
from helpers import DATA, refuses, small_settings

from nplm_jax.runs.program_from_settings import make_schedule


def test_a_batch_larger_than_the_corpus_is_refused():
    with refuses('train.batch_size'):
        make_schedule(small_settings({'train.batch_size': 221}), DATA.train)
    assert make_schedule(small_settings({'train.batch_size': 220}), DATA.train).steps_per_epoch == 1


@pytest.mark.parametrize('warmup', [93, 94])
def test_a_warm_up_as_long_as_the_run_or_longer_is_refused(warmup):
    with refuses('optimizer.warmup'):
        make_schedule(small_settings({'optimizer.warmup': warmup}), DATA.train)


def test_chunks_have_two_lengths_only_and_end_with_each_epoch():
    schedule = make_schedule(small_settings({'train.steps_per_execution': 12}), DATA.train)  # 31 updates per epoch
    boundaries = [0]
    while boundaries[-1] < schedule.total_steps:
        boundaries.append(schedule.next_boundary(boundaries[-1]))
    assert boundaries == [0, 12, 24, 31, 43, 55, 62, 74, 86, 93]
    assert {after - before for before, after in zip(boundaries, boundaries[1:])} == {12, 7}


def test_a_run_of_so_many_updates_may_end_within_an_epoch():
    schedule = make_schedule(small_settings({'train.steps_per_execution': 12, 'train.max_steps': 50}), DATA.train)
    assert schedule.total_steps == 50
    assert [schedule.next_boundary(step) for step in (31, 43)] == [43, 50]
    assert schedule.is_due(1000, 43, 50)
    longer = small_settings({'train.max_steps': 94})
    assert make_schedule(longer, DATA.train).total_steps == 93  # the epochs end first


def test_the_average_begins_at_a_boundary():
    changes = {'train.steps_per_execution': 12, 'train.average': 1.0, 'train.average_start': 0.3}
    schedule = make_schedule(small_settings(changes), DATA.train)
    assert schedule.average_start == 27
    assert [schedule.next_boundary(step) for step in (12, 24, 27, 31)] == [24, 27, 31, 43]
    with refuses('train.average_start'):
        make_schedule(small_settings({**changes, 'train.average': 0.0}), DATA.train)


def test_what_is_done_every_so_many_updates_is_due_at_the_next_boundary_and_at_the_end():
    schedule = make_schedule(small_settings({'train.steps_per_execution': 12}), DATA.train)
    boundaries = [0, 12, 24, 31, 43, 55, 62, 74, 86, 93]
    due = [now for before, now in zip(boundaries, boundaries[1:]) if schedule.is_due(20, before, now)]
    assert due == [24, 43, 62, 86, 93]  # the first boundary after 20, 40, 60 and 80, and the end


def test_the_next_boundary_does_not_depend_on_where_a_run_was_stopped():
    schedule = make_schedule(small_settings({'train.steps_per_execution': 12}), DATA.train)
    assert [schedule.next_boundary(step) for step in (0, 5, 11, 12, 30, 31, 33)] == [12, 12, 12, 24, 31, 43, 43]
