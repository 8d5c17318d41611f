"""Tests progress bars on terminals, and the line per minute in logs."""

import io
import sys
import time

import tqdm

from nplm_jax.utils.progress import INTERVAL, progress_bar, write


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work(monkeypatch, **options):
    """Processes 100 words per half minute, for two and a half minutes."""
    seconds = 1000.0
    monkeypatch.setattr(time, 'monotonic', lambda: seconds)
    monkeypatch.setattr(tqdm.std, 'time', lambda: seconds)
    with progress_bar(description='counting', unit=' words', initial=200, **options) as bar:
        for _ in range(5):
            seconds += INTERVAL / 2
            bar.update(100)
            bar.set_description('counting words')


def test_a_log_gets_a_line_a_minute_with_the_time_left(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', stderr := io.StringIO())
    work(monkeypatch, total=1000)
    assert stderr.getvalue() == (
        'counting words: 400 of 1.00k words (40%), 03:00 left\ncounting words: 600 of 1.00k words (60%), 02:00 left\n'
    )


def test_work_of_unknown_size_has_no_time_left(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', stderr := io.StringIO())
    work(monkeypatch, total=None)
    assert stderr.getvalue() == 'counting words: 400 words\ncounting words: 600 words\n'


def test_lines_go_to_a_given_log(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', stderr := io.StringIO())
    work(monkeypatch, total=1000, log=(log := io.StringIO()))
    assert not stderr.getvalue() and log.getvalue().count(' left\n') == 2


def test_a_terminal_has_the_bar_only(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', terminal := Terminal())
    work(monkeypatch, total=1000, log=(log := io.StringIO()))
    assert 'counting words:' in terminal.getvalue() and not log.getvalue()


def test_short_work_shows_no_bar(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', terminal := Terminal())
    with progress_bar(10, 'counting', ' words') as bar:
        bar.update(5)
    assert not terminal.getvalue()


def test_a_line_is_written_above_the_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'stderr', terminal := Terminal())
    with progress_bar(10, 'counting', ' words', delay=0):
        write('a result')
    assert capsys.readouterr().out == 'a result\n' and terminal.getvalue().count('counting') >= 2
