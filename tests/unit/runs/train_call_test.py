"""Tests the errors of `nplm_jax.train`, and that it does not train a finished run again."""

import pytest
from helpers import refuses

import nplm_jax
from configs import text as text_config


def test_the_same_call_reads_the_finished_run(tmp_path):
    first, again = (nplm_jax.train('sentences', tmp_path / 'run', {'train.epochs': 2}) for _ in range(2))
    assert first.folder == again.folder and first.results == again.results
    assert first.settings.train.epochs == 2


@pytest.mark.parametrize(
    ('config', 'minutes', 'changes', 'message'),
    [
        ('text', '5', {}, '--minutes'),
        ('text', 1, {'train.epochs': 2}, '--config.train.epochs'),
        (text_config.get_config(), 1, {}, 'minutes'),
        ('sentences', 1, {}, '--minutes'),
    ],
)
def test_python_refuses_minutes_in_one_line(tmp_path, config, minutes, changes, message):
    with refuses(message):
        nplm_jax.train(config, tmp_path / 'run', changes, minutes)
    assert not (tmp_path / 'run').exists()
