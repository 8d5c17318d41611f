"""A config in Python is the one that the same words after --config= give."""

import sys

import pytest
from helpers import refuses

from configs import brown, text
from nplm_jax.runs.command_line import load_config


@pytest.mark.parametrize(
    'file,config',
    [
        ('configs/text.py', text.get_config()),
        ('text', text.get_config()),
        ('brown:mlp9', brown.get_config('mlp9')),
        ('configs/text.py:kneser_ney_4', text.get_config('kneser_ney_4')),
        ('configs/brown.py:mlp9', brown.get_config('mlp9')),
    ],
)
def test_a_config_of_the_repository_is_found_from_any_folder(tmp_path, monkeypatch, file, config):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    loaded = load_config(file)
    assert loaded == config and loaded.is_locked
    assert sys.path == before


def test_a_file_in_the_working_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / 'configs').mkdir()
    lines = (
        'from nplm_jax.configs import default',
        'def get_config():',
        '    c = default.get_config()',
        "    c.name = 'own'",
    )
    (tmp_path / 'configs' / 'text.py').write_text('\n'.join((*lines, '    return c')))
    monkeypatch.chdir(tmp_path)
    assert load_config('configs/text.py').name == 'own'


@pytest.mark.parametrize(
    'file,message',
    [
        (
            'configs/nope.py',
            '--config',
        ),
        ('configs/text.py:nope', 'configs/text.py:nope'),
        ('configs/default.py:mlp9', '--config'),
        ('broken.py', '--config'),
    ],
)
def test_a_wrong_file_or_row_is_one_line(tmp_path, monkeypatch, file, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'broken.py').write_text('1 / 0')
    with refuses(message):
        load_config(file)
