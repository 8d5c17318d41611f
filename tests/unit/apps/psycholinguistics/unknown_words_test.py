"""Tests that commands and the function `surprisal` warn only if too many words are unknown."""

import itertools
import warnings

import pytest

import nplm_jax

KNOWN, UNKNOWN = 'i like dog', 'zebra okapi gnu'
ITEMS = 12


def write_sentences(folder, text):
    (folder / 'sentences.csv').write_text(f'sentence\n{text}\n')
    return f'--table={folder / "sentences.csv"}'


def write_pairs(folder, text):
    (folder / 'pairs.csv').write_text(f'good,bad\n{text},{text}\n')
    return f'--table={folder / "pairs.csv"}'


def write_times(folder, text):
    """Writes a table with enough known words for the regression, and many words of the given text."""
    words = itertools.cycle('i like dog love coffee hate milk'.split())
    rows = [
        (item, zone, word, 250 + (7 * item + 13 * zone) % 50)
        for item in range(ITEMS)
        for zone, word in enumerate([*text.split(), *itertools.islice(words, 20 + item % 3)])
    ]
    lines = ['item,zone,word,time', *(','.join(map(str, row)) for row in rows)]
    (folder / 'times.csv').write_text('\n'.join(lines) + '\n')
    return f'--table={folder / "times.csv"}'


COMMANDS = {
    'surprisal': lambda folder, text: (write_sentences(folder, text), '--sentence=sentence'),
    'pairs': lambda folder, text: (write_pairs(folder, text),),
    'reading-times': lambda folder, text: (write_times(folder, text), '--folds=2'),
}


@pytest.mark.parametrize('name', COMMANDS)
def test_a_command_warns_of_unknown_words(name, folders, tmp_path, nplm_command):
    for text, is_warned in ((KNOWN, False), (UNKNOWN, True)):
        _, err = nplm_command(name, folders / 'counts', *COMMANDS[name](tmp_path, text))
        found = [line for line in err if line.startswith('warning: ') and '<rare>' in line]
        assert len(found) == is_warned, err


def test_the_function_warns_of_unknown_words(folders):
    run = nplm_jax.load(folders / 'counts')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        nplm_jax.surprisal(run, KNOWN.split())
        assert not caught
        nplm_jax.surprisal(run, UNKNOWN.split())
    (found,) = caught
    assert '100.0%' in str(found.message)
