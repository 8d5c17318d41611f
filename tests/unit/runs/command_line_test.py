"""Tests that a config in Python equals the config that --config selects with the same words."""

import sys

import pytest
from helpers import refuses

from configs import brown, text
from nplm_jax.runs.command_line import check_flags, load_config


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


@pytest.mark.parametrize(
    ('words', 'flag', 'advice'),
    [
        (['--config=text'], 'model.family=gru', 'text:gru'),
        (['--config', 'text:lstm,adam'], 'model.family=gru', 'text:adam,gru'),
        (['--config=brown:lstm'], 'model.family=gru', 'brown:gru'),
        (['--config=brown:mlp9'], 'output.kind=nce', 'brown:mlp9,nce'),
        (['--config=text:kneser_ney'], 'model.family=lstm', 'text:lstm'),
    ],
)
def test_the_advice_for_a_flag_that_names_a_component_can_be_followed(words, flag, advice):
    key, _, name = flag.partition('=')
    with refuses(f'--config.{key}') as caught:
        check_flags(['launch.py', *words, f'--config.{flag}'])
    assert caught.value.problem.endswith(f'--config={advice}')
    values = load_config(advice)
    for part in key.split('.'):
        values = values[part]
    assert values == name


@pytest.mark.parametrize(
    'line', ['config.model.layers = 2', 'print(config.model.layers)', 'config.update(model=None.x)']
)
def test_a_key_that_the_components_of_a_config_do_not_have_gets_advice(tmp_path, line):
    (tmp_path / 'mine.py').write_text(
        f'from nplm_jax.configs import brown\ndef get_config():\n    config = brown.get_config()\n    {line}\n'
    )
    with refuses('--config') as caught:
        load_config(str(tmp_path / 'mine.py'))
    assert ('nplm_jax.override' in caught.value.problem) == ('None' not in line)
