"""What long work shows: a bar on a terminal, a line a minute elsewhere."""

import io
import sys

import pytest
from helpers import numbers

from nplm_jax.utils.progress import INTERVAL, ProgressBar, about, progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def work(clock, file, total=1000):
    """Does 100 words each half minute, for two and a half minutes."""
    with ProgressBar(total, 'counting', ' words', initial=200, file=file, clock=clock) as bar:
        for _ in range(5):
            clock.seconds += INTERVAL / 2
            bar.update(100)


def test_a_log_gets_a_line_a_minute_with_what_is_left():
    work(Clock(), log := io.StringIO())
    first, second = log.getvalue().splitlines()
    assert numbers(first) == ['400', '1,000', '40', '3'] and numbers(second) == ['600', '1,000', '60', '2']
    assert first.startswith('counting: ') and first.endswith(' minutes left')


def test_of_work_without_a_known_end_a_log_gets_what_is_done():
    work(Clock(), log := io.StringIO(), total=None)
    assert log.getvalue().splitlines() == ['counting: 400 words', 'counting: 600 words']


def test_lines_go_to_stderr_where_no_file_is_given(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', log := io.StringIO())
    work(Clock(), None)
    assert log.getvalue().count('left') == 2


@pytest.mark.parametrize('file, lines', [(Terminal(), 0), (io.StringIO(), 2)])
def test_a_terminal_has_the_bar_and_lines_only_where_their_file_is_none(monkeypatch, file, lines):
    monkeypatch.setattr(sys, 'stderr', terminal := Terminal())
    work(Clock(), file)
    assert 'counting' in terminal.getvalue() and file.getvalue().count(' left') == lines


def test_short_counting_of_ngrams_shows_no_bar(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', terminal := Terminal())
    with progress_bar(10, 'counting', ' words') as bar:
        bar.update(5)
    assert 'counting' not in terminal.getvalue()


def test_a_duration_is_in_seconds_or_minutes():
    assert [about(seconds) for seconds in (3, 90, 91, 600)] == [
        'about 3 seconds', 'about 90 seconds', 'about 2 minutes', 'about 10 minutes'
    ]  # fmt: skip
