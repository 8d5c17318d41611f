"""Everything that scores text warns, in the same words, if too many of its words are unknown, and only then."""

import io
import warnings

import pytest

import nplm_jax
from nplm_jax.kenlm.model import Model

KNOWN, UNKNOWN = 'i like dog', 'zebra okapi gnu'


def write_text(folder, text):
    (folder / 'text').write_text(f'{text}\n')
    return folder / 'text'


COMMANDS = {
    'score': lambda folder, text: ('--summary',),
    'rescore': lambda folder, text: (),
    'filter': lambda folder, text: ('--text', write_text(folder, text)),
    'compare': lambda folder, text: (f'--text={write_text(folder, text)}',),
}


@pytest.mark.parametrize('name', COMMANDS)
def test_a_command_warns_of_unknown_words(name, folders, tmp_path, nplm_command, monkeypatch):
    for text, is_warned in ((KNOWN, False), (UNKNOWN, True)):
        stdin = f'1 ||| {text}\n' if name == 'rescore' else f'{text}\n'
        monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(stdin.encode())))
        _, err = nplm_command(name, folders / 'counts', *COMMANDS[name](tmp_path, text))
        found = [line for line in err if line.startswith('warning: ') and '<rare>' in line]
        assert len(found) == is_warned, err


PYTHON = {
    'kenlm': lambda run, text: Model(run).score(text),
    'kenlm, lines': lambda run, text: list(Model(run).score_lines([text])),
}


@pytest.mark.parametrize('name', PYTHON)
def test_a_function_warns_of_unknown_words(name, folders):
    run = nplm_jax.load(folders / 'counts')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        PYTHON[name](run, KNOWN)
        assert not caught
        PYTHON[name](run, UNKNOWN)
    (found,) = caught
    assert '100.0%' in str(found.message)


def test_prompts_name_their_unknown_words(folders, nplm_command):
    """They are not scored, so nothing is said about perplexities."""
    for command in ('next', 'generate'):
        _, err = nplm_command(command, folders / 'counts', '--prompt=i like zebra')
        (line,) = err
        assert '33.3%' in line and line.endswith(' zebra')
