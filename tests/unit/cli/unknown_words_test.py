"""Tests that commands that score text warn only if too many words are unknown."""

import io
import warnings

import pytest
from helpers import check_unknown_words

import nplm_jax
from nplm_jax.kenlm.model import Model


@pytest.mark.parametrize('name', ['score', 'compare'])
def test_a_command_warns_of_unknown_words(name, folders, tmp_path, nplm_command, monkeypatch):
    def call(text):
        (tmp_path / 'text').write_text(f'{text}\n')
        monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(f'{text}\n'.encode())))
        flag = '--summary' if name == 'score' else f'--text={tmp_path / "text"}'
        return nplm_command(name, folders / 'counts', flag)[1]

    check_unknown_words(call)


PYTHON = {
    'score': lambda run, text: Model(run).score(text),
    'score_lines': lambda run, text: list(Model(run).score_lines([text])),
}


@pytest.mark.parametrize('name', PYTHON)
def test_kenlms_interface_warns_of_unknown_words(name, folders):
    run = nplm_jax.load(folders / 'counts')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        PYTHON[name](run, 'i like dog')
        assert not caught
        PYTHON[name](run, 'zebra okapi gnu')
    (found,) = caught
    assert '100.0%' in str(found.message)


def test_prompts_name_their_unknown_words(folders, nplm_command):
    """Prompts are not scored, so the message does not mention perplexities."""
    for command in ('next', 'generate'):
        _, err = nplm_command(command, folders / 'counts', '--prompt=i like zebra')
        (line,) = err
        assert '33.3%' in line and line.endswith(' zebra')
