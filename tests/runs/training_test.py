"""`nplm_jax.train`: what it refuses, and that a finished run is not trained again."""

import pytest

import nplm_jax
from configs import text as text_config
from nplm_jax.utils.errors import BadInput


def test_the_same_call_reads_the_finished_run(tmp_path):
    first, again = (nplm_jax.train('sentences', tmp_path / 'run', {'train.epochs': 2}) for _ in range(2))
    assert first.folder == again.folder and first.results == again.results
    assert first.settings.train.epochs == 2


@pytest.mark.parametrize(
    ('config', 'minutes', 'changes', 'message'),
    [
        ('text', '5', {}, "--minutes='5': must be a positive number"),
        ('text', 1, {'train.epochs': 2}, '--config.train.epochs=2: cannot be combined with --minutes'),
        (text_config.get_config(), 1, {}, 'minutes=1: needs a config by its name or path, such as text'),
        ('sentences', 1, {}, '--minutes: .* defines no network'),
    ],
)
def test_python_refuses_minutes_in_one_line(tmp_path, config, minutes, changes, message):
    with pytest.raises(BadInput, match=message):
        nplm_jax.train(config, tmp_path / 'run', changes, minutes)
    assert not (tmp_path / 'run').exists()
