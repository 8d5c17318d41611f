"""Tests the output of runs, including runs that are stopped repeatedly and runs on a full disk."""

import dataclasses
import errno
import io
import pathlib
import shlex
import shutil
import struct
import sys
import time

import numpy as np
import pytest
import tqdm
from helpers import numbers
from tensorboardX.proto import event_pb2

from nplm_jax.config.sections import PaperRow
from nplm_jax.reporting.results import format_results
from nplm_jax.reporting.run_reporter import Reporter, next_steps, read_metrics
from nplm_jax.reporting.shell import nplm_command as nplm_words
from nplm_jax.training.flops import Cost
from nplm_jax.training.milestones import Progress, Schedule

SCHEDULE = Schedule(
    steps_per_epoch=4, total_steps=12, evaluate_every=4, checkpoint_every=4, log_every=2, steps_per_execution=2
)
COST = Cost(flops_per_word=1000, peak=40_000.0)


def report(folder, progress, steps):
    reporter = Reporter(folder)
    reporter.start(progress, SCHEDULE, 3, COST)
    for step in steps:
        progress = dataclasses.replace(progress, step=step, seconds=step / 2, train_seconds=step / 2, valid_nll=2.0)
        reporter.trained(progress, np.full(2, 1.0))
        if step % 4 == 0:
            reporter.validated(progress)
    reporter.close()


def read_events(path):
    """Returns the values by (step, name) and the time of each step. A record has a length, data and two checksums."""
    data, values, times = path.read_bytes(), {}, {}
    while data:
        (size,) = struct.unpack('<Q', data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        times[event.step] = event.wall_time
        values.update({(event.step, value.tag): value.simple_value for value in event.summary.value})
        data = data[16 + size :]
    return values, times


def test_the_lines_are_the_perplexities_and_the_rate(tmp_path):
    report(tmp_path, Progress(), (2, 4))
    at_2, at_4, validated = read_metrics(tmp_path / 'metrics.jsonl')
    assert at_2 == {
        'step': 2, 'epoch': 0.5, 'seconds': 1.0, 'train_perplexity': pytest.approx(np.e),
        'words_per_second': 6.0, 'flops_per_second': 6000.0, 'mfu': 0.15
    }  # fmt: skip
    assert at_4['train_perplexity'] == pytest.approx(np.e) and at_4['epoch'] == 1
    assert validated == {
        'step': 4, 'epoch': 1.0, 'seconds': 2.0, 'valid_perplexity': pytest.approx(np.e**2)
    }  # fmt: skip


def test_a_validation_shows_the_batches_since_the_last_and_a_sample_on_one_line(tmp_path, lines):
    reporter = Reporter(tmp_path, 'one')
    reporter.start(Progress(), SCHEDULE, 3, COST)
    for step, nll in ((2, 1.0), (4, 3.0), (6, 5.0), (8, 5.0)):
        reporter.trained(progress := Progress(step=step, train_seconds=1.0, valid_nll=2.0), np.full(2, nll))
        if step % 4 == 0:
            reporter.validated(progress)
    reporter.sampled('<p> the jury\nsaid')
    reporter.close()
    said = lines()[0]
    for epoch, train in ('1.00', '7.39'), ('2.00', '148.41'):
        assert any(line.startswith('one: ') and numbers(line)[:3] == [epoch, train, '7.39'] for line in said)
    assert any(line.endswith(': <p> the jury said') for line in said)


def test_no_mean_is_said_of_batches_some_of_which_an_earlier_start_read(tmp_path, lines):
    for start in (0, 2):
        reporter = Reporter(tmp_path)
        reporter.start(Progress(step=start, seconds=float(start)), SCHEDULE, 3, COST)
        reporter.trained(progress := Progress(step=start + 2, train_seconds=1.0, valid_nll=2.0), np.full(2, 1.0))
        if start:
            reporter.validated(progress)
        reporter.close()
    assert any(numbers(line)[:2] == ['1.00', '7.39'] for line in lines()[0])


def test_events_are_the_lines_however_often_a_run_was_stopped(tmp_path):
    report(tmp_path, Progress(), (2, 4, 6))
    report(tmp_path, Progress(step=4, seconds=2.0), (6, 8))
    rows = read_metrics(tmp_path / 'metrics.jsonl')
    assert [row['step'] for row in rows] == [2, 4, 4, 6, 8, 8]
    (file,) = (tmp_path / 'tensorboard').iterdir()
    assert file.name.startswith('events.out.tfevents.')
    values, times = read_events(file)
    names = {
        'train_perplexity',
        'words_per_second',
        'flops_per_second',
        'mfu',
        'valid_perplexity',
    }
    assert values == {(r['step'], n): pytest.approx(r[n]) for r in rows for n in names & set(r)}
    assert np.diff([times[step] for step in (2, 4)]) == pytest.approx(1.0)  # with the original distances in time


def test_a_full_disk_ends_in_the_disks_error_and_closes_everything(tmp_path):
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), SCHEDULE, 3, COST)
    reporter._file.close()
    reporter._file = open('/dev/full', 'w', encoding='utf-8')
    with pytest.raises(OSError) as trained:
        reporter.trained(Progress(step=2, train_seconds=1.0), np.ones(2))
    with pytest.raises(OSError) as closed:
        reporter.close()
    assert trained.value.errno == closed.value.errno == errno.ENOSPC
    assert reporter._file.closed and reporter._events._writer.closed


@pytest.mark.parametrize(
    'progress,said',
    [
        (Progress(), []),
        (Progress(step=6), [['1.50', '6', '12']]),
        (Progress(step=12, finished=True), [['3.00', '12']]),
    ],
)
def test_a_resumed_run_says_from_where(tmp_path, lines, progress, said):
    report(tmp_path, progress, ())
    assert list(map(numbers, lines()[0])) == said


def test_a_run_that_saved_nothing_says_that_it_starts_again(tmp_path, lines):
    said = []
    for _ in range(2):
        report(tmp_path, Progress(), ())
        said.append(len(lines()[0]))
    assert said == [0, 1]


def test_a_run_that_patience_stops_says_so(tmp_path, lines):
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), SCHEDULE, 3, COST)
    for step in (8, 12):  # not at the last update
        reporter.validated(Progress(step=step, valid_nll=2.0, evaluations_since_best=7, finished=True))
    reporter.close()
    assert [numbers(line) for line in lines()[0]].count(['7']) == 1


def test_a_log_gets_a_line_a_minute_with_words_train_perplexity_and_time_left(tmp_path, lines, monkeypatch):
    seconds = 0.0
    monkeypatch.setattr(time, 'monotonic', lambda: seconds)
    monkeypatch.setattr(tqdm.std, 'time', lambda: seconds)
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), dataclasses.replace(SCHEDULE, log_every=100), 300, COST)
    for step in range(2, 14, 2):
        seconds += 25
        reporter.trained(Progress(step=step, train_seconds=step / 100), np.full(2, np.log(step)))
    reporter.close()
    perplexities = [(2 * 4 * 6) ** (1 / 3), (2 * 4 * 6 * 8 * 10 * 12) ** (1 / 6)]  # of all updates up to the line
    first, second = (f'{p:.1f}' for p in perplexities)
    said, stderr = lines()
    assert not stderr and all('30.0MFLOP/s' in line and '75000%' in line for line in said)  # 300 words x 100 updates/s
    assert [line.partition(',')[0] for line in said] == ['epoch 1.50', 'epoch 3.00']
    assert f' {first},' in said[0] and said[0].endswith(': 1.80k of 3.60k words (50%), 01:15 left')
    assert f' {second},' in said[1] and said[1].endswith(': 3.60k of 3.60k words (100%), 00:00 left')


def test_a_change_after_training_is_said_with_the_perplexity_before_and_after(tmp_path, lines):
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), SCHEDULE, 3, COST)
    reporter.postprocessed('calibration on 5 of the 9 validation words', np.log(242.27), np.log(219.4))
    reporter.close()
    (line,) = lines()[0]
    assert line.startswith('Calibration on 5 of the 9 ') and numbers(line) == ['5', '9', '242.27', '219.40']


def test_a_perplexity_of_a_sample_says_of_how_many_words_it_is(tmp_path, lines):
    reporter = Reporter(tmp_path)
    reporter.start(Progress(), SCHEDULE, 3, COST, sampled_words=20_000)
    reporter.trained(Progress(step=4, train_seconds=1.0), np.ones(4))
    reporter.validated(Progress(step=4, best_step=4, valid_nll=2.0))
    reporter.postprocessed('calibration', np.log(62.08), np.log(61.28))
    reporter.close()
    validated, calibrated = (numbers(line) for line in lines()[0] if '20,000' in line)
    assert '7.39' in validated and calibrated == ['62.08', '61.28', '20,000']


def test_what_to_do_next_quotes_the_folder(tmp_path):
    folder = tmp_path / "it's a run"
    folder.mkdir()
    steps = next_steps(folder)
    assert 'figure' not in steps
    commands = [shlex.split(line, comments=True) for line in steps.splitlines()[1:-1]]
    assert [words[words.index(str(folder)) - 1] for words in commands] == ['generate', 'score']
    (folder / 'learning_curve.png').touch()
    assert next_steps(folder).splitlines()[0] == f'Figure: {folder}/learning_curve.png'


def test_every_next_step_runs(folders, tmp_path, monkeypatch, nplm_command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'runs').mkdir()
    for name in ('counts', 'network', 'other'):
        shutil.copytree(folders / name, tmp_path / 'runs' / name)
    steps = next_steps(pathlib.Path('runs') / 'network')
    steps = [shlex.split(line, comments=True) for line in steps.splitlines() if line[:1] == ' ']
    steps = [words[len(nplm_words()) :] for words in steps]
    assert [words[0] for words in steps] == ['generate', 'score', 'compare', '--help']
    assert steps[-2][2] == 'runs/counts'  # not runs/other, which has another text
    for words in steps:
        if words[-2:] == ['<', 'text.txt']:
            monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like dog')))
            words = words[:-2]
        printed, _ = nplm_command(*words)
        assert printed


def test_the_table_tells_the_share_of_unknown_words_and_warns_of_many():
    results = {'name': 'a', 'perplexity': {'train': 1, 'valid': 2, 'test': 3}}
    no_row = PaperRow()
    few, many = ({**results, 'oov': {'valid': 0.04, 'test': share}} for share in (0.05, 0.81))
    (line,) = format_results(few, no_row).splitlines()[3:]
    assert line.startswith('<rare> ') and numbers(line) == ['4.0', '5.0']
    warning = format_results(many, no_row).splitlines()[4]
    assert warning.startswith('warning: ') and numbers(warning)[0] == '81.0'


def test_the_table_has_the_mixtures_and_the_papers_row_where_there_are_any():
    results = {'name': 'a', 'perplexity': {'train': 1, 'valid': 2.25, 'test': None}}
    no_row = PaperRow()
    assert format_results(results, no_row).splitlines()[2:] == ['| a          | 1.0   | 2.2   | inf  |']
    results |= {'mixture': {'by_frequency': {'valid': 2, 'test': 3}}, 'impossible_words': {'valid': 0, 'test': 4}}
    table = format_results(results, PaperRow('MLP1', 0.0, 284.0, 268.0)).splitlines()
    cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in table[3:5]]
    assert 'by frequency' in cells[0][0] and cells[0][1:] == ['-', '2.0', '3.0']
    assert cells[1] == ['paper, MLP1', '-', '284.0', '268.0']
    assert numbers(table[5])[0] == '0.5'
    assert len(table) == 8 and table[7].startswith('4 test ')
    results = {**results, 'evaluated_train_words': 1000, 'calibration_words': 2000}
    notes = format_results(results, no_row).splitlines()
    assert any('eval.train_words' in line and numbers(line) == ['1,000'] for line in notes)
    assert ['2,000'] in map(numbers, notes)


NO_ROW = PaperRow()


def per_unit_lines(per_word, tokens, words):
    """Returns the sentences below the table of a run with these numbers of validation tokens and words."""
    results = {
        'name': 'a',
        'perplexity': {'train': 1, 'valid': 1.3, 'test': 1.3},
        'perplexity_per_word': {'valid': per_word},
        'bits_per_character': {'valid': 0.25},
        'bits_per_byte': {'valid': 0.125},
        'sizes': {'valid': {'tokens': tokens, 'words': words, 'characters': 90, 'utf8_bytes': 180}},
    }
    return format_results(results, NO_ROW).splitlines()[3:]


def test_a_perplexity_per_word_that_is_not_the_tables_says_how_many_words_and_tokens_it_is_of():
    def said(*args, **sizes):
        (line,) = per_unit_lines(*args, **sizes)
        assert line.startswith('valid ')
        return numbers(line)

    bits = ['0.250', '0.125']
    assert said(1.5, tokens=13, words=9) == ['9', '13', '1.5', *bits]
    assert said(1.3, tokens=9, words=9) == bits  # in the table already
    assert said(None, tokens=90, words=1) == bits  # without blanks, it would be meaningless
    assert said(1.6e197, tokens=980, words=20) == ['20', '980', '1.6e+197', *bits]  # of Chinese, each a word
