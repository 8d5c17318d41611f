"""Tests the commands for open vocabularies: `spell`, `score --open` and `generate --open`."""

import contextlib
import csv
import io
import json
import math
import sys

import numpy as np
import pytest

from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config_lib
from nplm_jax.models.open_vocabulary import OpenVocabulary, count_characters
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.runs import experiment, loading, spelling

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

QUICK = {
    **{'model.n': 4, 'model.m': 5, 'model.h': 16, 'optimizer.learning_rate': 0.02, 'train.batch_size': 64},
    **{'train.evaluate_every': 0, 'train.steps_per_execution': 30},
}
TEXT = 'the old bagi dog .\n\nthe dog 日本 the'


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """Two count-based models of the same text; `nplm spell` has trained a spelling model for the first."""
    root, rng = tmp_path_factory.mktemp('spell'), np.random.default_rng(0)
    pairs = [a + b for a in 'bdgkl' for b in 'aiu']
    rare = [''.join(rng.choice(pairs, rng.integers(1, 4))) for _ in range(400)]
    (root / 'text').write_text('\n\n'.join(' '.join(('the', 'old', new, 'dog', '.')) for new in rare))
    config = text_config.get_config()
    config.corpus.path, config.corpus.tokens, config.corpus.min_count = str(root / 'text'), 'whitespace', 30
    config = config_lib.override(config, {'model.family': 'add_delta'})
    for name, n in (('first', 2), ('second', 3)):
        config.model.n = n
        experiment.run(config, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spelling, 'UPDATES', 300)
        patch.setattr(spelling, 'NETWORK', {**spelling.NETWORK, **QUICK})
        cli.main(['spell', str(root / 'first')])
        yield root


@pytest.fixture
def score(monkeypatch, lines):
    def call(text, *arguments, command='score'):
        lines()
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        cli.main([command, *map(str, arguments)])
        return lines()

    return call


def direct(folder, line):
    """Returns log10 P of each word of a line after the paragraph mark, computed directly by the models."""
    loaded = loading.load(folder)
    words, model = loaded.vocabulary, loaded.model
    opened = OpenVocabulary(model, words, spelling.load(folder))
    return opened.score(['<p>', *line]).log_p_T[1:] / math.log(10)


def test_spell_says_how_well_it_does_on_words_it_has_not_seen_and_writes_some(runs, nplm_command):
    table, progress = nplm_command('spell', runs / 'first')
    header, _, *rows, written = table
    assert len(rows) == 3
    rare = spelling.read_rare_words(runs / 'first')
    measured = spelling.measure(spelling.load(runs / 'first'), rare.words)
    assert [float(row.split('|')[5]) for row in rows] == [
        pytest.approx(m['bits_per_character'], abs=6e-4) for m in measured.values()
    ]
    (output,), _ = nplm_command('spell', runs / 'first', '--json')
    found = json.loads(output)
    assert {key: found[key] for key in measured} == measured and len(found['words']) == 10
    assert written.endswith(f': {" ".join(found["words"])}')


@pytest.mark.skipif('surprisal' not in all_commands(), reason='the app is deleted')
def test_surprisal_open_adds_up_to_score_open(runs, score, monkeypatch, lines):
    line, *_ = score(TEXT, runs / 'first', '--open')[0]
    log10_p = float(line.partition('Total: ')[2].split()[0])
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    cli.main(['surprisal', str(runs / 'first'), '--open', '--context=<p>'])
    rows = list(csv.DictReader(lines()[0], delimiter='\t'))
    bits = [float(row['surprisal_first']) for row in rows if row['item'] == '1']
    assert len(bits) == 5 and sum(bits) == pytest.approx(-log10_p / math.log10(2), rel=1e-5)
    assert [row['scored_as'] for row in rows] == [
        'word',
        'word',
        'spelled',
        'word',
        'word',
        'word',
        'word',
        'spelled',
        'word',
    ]


def test_score_open_has_every_word_by_its_spelling(runs, score):
    (first, empty, second, *summary), stderr = score(TEXT, runs / 'first', '--open')
    assert stderr == [] and empty == 'Total: 0 OOV: 0'
    printed = [[float(c.split()[2]) for c in line.split('\t')[:-1]] for line in (first, second)]
    lines = [text.split() for text in TEXT.split('\n\n')]
    for found, line in zip(printed, lines):
        np.testing.assert_allclose(found, direct(runs / 'first', line), rtol=0, atol=1e-5)
    values = dict(row.split(':\t') for row in summary)
    total = sum(map(sum, printed))
    characters = sum(map(len, TEXT.split('\n')))  # line ends are not scored
    assert float(values['Bits per character']) == pytest.approx(-total * math.log2(10) / characters, abs=1e-4)
    assert float(values['Perplexity including OOVs']) == pytest.approx(10 ** (-total / 9), rel=1e-5)
    assert values['OOVs'] == '2'
    (output,), _ = score(TEXT, runs / 'first', '--open', '--json')
    assert json.loads(output)['bits_per_character'] == pytest.approx(float(values['Bits per character']), abs=1e-6)


@pytest.mark.parametrize('symbol', ['<unk>', '<rare>'])
def test_a_symbol_for_unknown_words_is_not_spelled(symbol, runs, score, monkeypatch, lines):
    text = f'the {symbol} dog bagi'
    summary, stderr = score(text, runs / 'first', '--open', '--summary')
    assert len(stderr) == 1 and symbol in stderr[0] and not any('Bits' in row for row in summary)
    if 'surprisal' in all_commands():
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        cli.main(['surprisal', str(runs / 'first'), '--open'])
        rows = csv.DictReader(lines()[0], delimiter='\t')
        assert [row['scored_as'] for row in rows] == ['word', '<rare>', 'word', 'spelled']


def test_the_end_of_a_line_and_a_stream_are_scored_with_spellings_too(runs, score):
    closed, opened = (score(TEXT, runs / 'first', '--stream', '--end', *more)[0] for more in ([], ['--open']))
    words = [[line.split('\t')[:-1] for line in output[:3]] for output in (closed, opened)]
    for a, b in zip(*(sum(lines, []) for lines in words)):
        assert (a == b) == (a.split('=')[0] not in ('bagi', '日本'))
        assert float(b.split()[2]) <= float(a.split()[2])


@pytest.mark.skipif('rescore' not in all_commands(), reason='the app is deleted')
def test_alternatives_with_unknown_words_are_ranked_by_their_spelling(runs, score):
    text = '1 ||| the old xqzy dog\n1 ||| the old badi dog'
    (first, second), _ = score(text, runs / 'first', '--open', command='rescore')
    assert first.startswith('1 ||| the old badi dog ||| ')
    (by_counts, *_), _ = score(text, runs / 'first', command='rescore')
    assert by_counts.startswith('1 ||| the old xqzy dog ||| ')  # <rare> occurs twice; words in the file's order
    assert float(first.split('||| ')[-1]) == pytest.approx(
        direct(runs / 'first', 'the old badi dog'.split()).sum(), abs=1e-4
    )
    assert float(second.split('||| ')[-1]) < float(first.split('||| ')[-1]) - 2


def test_a_mixture_takes_the_spelling_of_the_run_that_has_one(runs, score):
    each = [score('the old bagi', runs / name)[0][0] for name in ('first', 'second')]
    p = [10 ** float(line.split('\t')[2].split()[2]) for line in each]
    (line, *_), _ = score('the old bagi', runs / 'second', runs / 'first', '--open')
    spelled = spelling.load(runs / 'first').log_probabilities(['bagi'])[0] / math.log(10)
    assert float(line.split('\t')[2].split()[2]) == pytest.approx(math.log10(sum(p) / 2) + spelled, abs=1e-5)


def test_generate_open_writes_new_words_where_rare_is_drawn(runs, nplm_command):
    flags = runs / 'first', '--words=12', '--samples=20', '--seed=4'
    closed, opened = (nplm_command('generate', *flags, flag)[0] for flag in ('--rare', '--open'))
    words = loading.load(runs / 'first').vocabulary
    new = []
    for a, b in zip(closed, opened, strict=True):
        for x, y in zip(a.split(), b.split(), strict=True):
            assert x == y or x == '<rare>'
            new += [y] if x == '<rare>' else []
    assert len(new) > 10 and not set(new) & set(words.words) and set(''.join(new)) <= set('bdgklaiu')
    few, _ = nplm_command('generate', runs / 'first', '--words=12', '--samples=3', '--seed=4', '--open')
    assert few == opened[:3]
    (output,), _ = nplm_command('generate', *flags, '--open', '--json')
    assert [' '.join(text['words']) for text in json.loads(output)['texts']] == opened


def copy_run(run, folder):
    """Copies a run without its spelling model."""
    for name in (
        'config.json',
        'corpus.json',
        'vocabulary.txt',
        'tokenizer_config.json',
        'results.json',
        'model.safetensors',
    ):
        (folder / name).write_bytes((run / name).read_bytes())


def test_any_family_spells(runs, nplm_command, tmp_path):
    copy_run(runs / 'second', tmp_path)
    (output,), _ = nplm_command('spell', tmp_path, '--family=modified_kneser_ney', '--n=4', '--json')
    loaded = loading.load(tmp_path / 'spelling')
    settings, symbols, model = loaded.settings, loaded.vocabulary, loaded.model
    assert (settings.model.name, settings.model.n) == ('modified_kneser_ney', 4)
    found, rare = json.loads(output), spelling.read_rare_words(tmp_path)
    log_p = Spelling(model, symbols, rare.vocabulary).log_probabilities(rare.words['test']).sum()
    assert found['test']['bits_per_character'] == pytest.approx(
        -log_p / math.log(2) / count_characters(rare.words['test']), rel=1e-6
    )
    assert set(''.join(found['words'])) <= set('bdgklaiu')


WRONG = [
    (['spell', 'second', '--family=mlp'], "model.family='mlp': "),
    (['spell', 'second', '--n=1'], 'model.n=1: '),
    (
        ['score', 'second', '--open'],
        'second: ',
    ),
    (['generate', 'second', '--open'], 'second: '),
    (['generate', 'first', '--open', '--beam=2'], '--open=True: '),
    (['generate', 'first', '--open', '--greedy'], '--open=True: '),
    (['spell', 'first', 'second'], 'unrecognized arguments: '),
    (['spell', 'nowhere'], "nowhere': "),
    (['spell', 'first', '--seed=-1'], '--seed=-1: '),
    (['spell', 'first', '--seed=3'], "first/spelling': "),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, runs, score, lines):
    name, *arguments = [a if a.startswith('--') or i == 0 else str(runs / a) for i, a in enumerate(arguments)]
    lines()
    with pytest.raises(SystemExit) as stop:
        score('the old', *arguments) if name == 'score' else cli.main([name, *arguments])
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[-1] and len(stderr) == 1, stderr


def test_a_run_without_rare_words_has_nothing_to_spell(folders, lines):
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['spell', str(folders / 'network')])
    assert stop.value.code == 2
    (line,) = lines()[1]
    assert line.startswith(f"RUN='{folders / 'network'}': ")
    assert 'corpus.min_count=1' in line and 'corpus.max_vocabulary=0' in line


def test_a_packed_model_is_not_spelled(runs, nplm_command, lines, tmp_path):
    nplm_command('pack', runs / 'second', f'--output={tmp_path}/model.nplm')
    with pytest.raises(SystemExit):
        cli.main(['spell', str(tmp_path / 'model.nplm')])
    assert str(tmp_path / 'model.nplm') in lines()[1][-1]


def test_a_signal_ends_with_the_command_that_goes_on(runs, lines, monkeypatch, tmp_path):
    copy_run(runs / 'second', tmp_path)
    monkeypatch.setattr('nplm_jax.runs.experiment.interruptible', lambda: contextlib.nullcontext(lambda: 15))
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['spell', str(tmp_path)])
    assert stop.value.code == 143
    last = lines()[1][-1]
    assert ' update 0 ' in last and ' spell ' in last
    assert not spelling.catalog.is_finished(tmp_path / 'spelling')
