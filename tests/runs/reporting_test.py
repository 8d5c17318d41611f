import dataclasses
import struct

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from nplm_jax.runs.reporting import Reporter, draw_learning_curve, read_metrics
from nplm_jax.training.schedule import Progress, Schedule

PLAN = Schedule(
    steps_per_epoch=4, total_steps=12, evaluate_every=4, checkpoint_every=4, log_every=2, steps_per_execution=2
)


def go(folder, progress, steps):
    reporter = Reporter(folder)
    reporter.start(progress, PLAN, 3)
    for step in steps:
        progress = dataclasses.replace(progress, step=step, seconds=step / 2, train_seconds=step / 2, valid_nll=2.0)
        reporter.trained(progress, np.full(2, 1.0))
        if step % 4 == 0:
            reporter.validated(progress)
    reporter.close()


def test_events_are_the_lines_however_often_a_run_was_stopped(tmp_path):
    go(tmp_path, Progress(), (2, 4, 6))
    go(tmp_path, Progress(step=4, seconds=2.0), (6, 8))
    rows = read_metrics(tmp_path / 'metrics.jsonl')
    assert [row['step'] for row in rows] == [2, 4, 4, 6, 8, 8]
    (file,) = (tmp_path / 'tensorboard').iterdir()
    assert file.name.startswith('events.out.tfevents.')
    found, times = read_events(file)
    names = {'train_perplexity', 'words_per_second', 'valid_perplexity'}
    assert found == {(r['step'], n): pytest.approx(r[n]) for r in rows for n in names & set(r)}
    assert np.diff([times[step] for step in (2, 4)]) == pytest.approx(1.0)  # as far apart as they were


def test_a_full_disk_ends_in_the_disks_error_and_closes_everything(tmp_path):
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), PLAN, 3)
    reporter._file.close()
    reporter._file = open('/dev/full', 'w', encoding='utf-8')
    with pytest.raises(OSError, match='No space left on device'):
        reporter.trained(Progress(step=2, train_seconds=1.0), np.ones(2))
    with pytest.raises(OSError, match='No space left on device'):
        reporter.close()
    assert reporter._file.closed and reporter._events._writer.closed


def test_a_dollar_in_a_name_is_no_formula(tmp_path):
    go(tmp_path, Progress(), (2, 4))
    assert draw_learning_curve(tmp_path, r'a$\foo$').stat().st_size > 1000


def read_events(path):
    """The values by (step, name), and when each step was; a record is its length, a checksum, itself and another."""
    data, found, times = path.read_bytes(), {}, {}
    while data:
        (size,) = struct.unpack('<Q', data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        times[event.step] = event.wall_time
        found.update({(event.step, value.tag): value.simple_value for value in event.summary.value})
        data = data[16 + size :]
    return found, times
