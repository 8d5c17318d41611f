"""The commands of an experiment warn if too many of its words are unknown, and only then."""

import itertools

import pytest
from helpers import check_unknown_words

import nplm_jax


def write_times(text):
    """Known words enough for the regression, and beside them many of the text."""
    words = itertools.cycle('i like dog love coffee hate milk'.split())
    rows = [
        (item, zone, word, 250 + (7 * item + 13 * zone) % 50)
        for item in range(12)
        for zone, word in enumerate([*text.split(), *itertools.islice(words, 20 + item % 3)])
    ]
    return '\n'.join(['item,zone,word,time', *(','.join(map(str, row)) for row in rows)])


COMMANDS = {
    'surprisal': (lambda text: f'sentence\n{text}', '--sentence=sentence'),
    'pairs': (lambda text: f'good,bad\n{text},{text}',),
    'reading-times': (write_times, '--folds=2'),
}


@pytest.mark.parametrize('name', COMMANDS)
def test_a_command_warns_of_unknown_words(name, folders, tmp_path, nplm_command):
    def call(text):
        write, *flags = COMMANDS[name]
        (tmp_path / 'table.csv').write_text(f'{write(text)}\n')
        return nplm_command(name, folders / 'counts', f'--table={tmp_path / "table.csv"}', *flags)[1]

    check_unknown_words(call)


def test_surprisal_of_a_list_warns_of_unknown_words(folders, recwarn):
    run = nplm_jax.load(folders / 'counts')
    recwarn.clear()
    nplm_jax.surprisal(run, ['i', 'like', 'dog'])
    assert not recwarn.list
    nplm_jax.surprisal(run, ['zebra', 'okapi', 'gnu'])
    assert '100.0%' in str(recwarn.pop().message)
