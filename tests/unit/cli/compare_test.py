"""Tests that `nplm compare`, `runs` and `info` show the numbers in the files of the runs."""

import json
import math
import re
import shutil

import pytest
from helpers import numbers, refuses

from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli import info as info_command
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import records
from nplm_jax.config import settings as config_lib
from nplm_jax.data.line_start import LineStart
from nplm_jax.inference import scoring
from nplm_jax.reporting import run_table
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

TEXT = 'i like dog\ni love zzz\n\ni hate milk\n'


@pytest.fixture
def text(tmp_path):
    (tmp_path / 'text').write_text(TEXT)
    return tmp_path / 'text'


def cells(line):
    return [cell.strip() for cell in line.strip('|').split('|')]


def recorded(folder):
    return json.loads((folder / 'results.json').read_text())


def test_the_table_has_what_the_runs_recorded_and_marks_the_best(folders, nplm_command):
    (header, _, *rows, empty, legend), stderr = nplm_command('compare', folders / 'counts', folders / 'network')
    assert not empty and legend.startswith('* ')
    assert cells(header) == ['run', 'corpus', 'model', 'vocabulary', 'train', 'valid', 'test', 'seconds', 'date']
    assert [cells(row)[0] for row in rows] == ['counts', 'network'] and not stderr
    for row, name in zip(rows, ('counts', 'network')):
        perplexity = recorded(folders / name)['perplexity']
        best = ' *' if name == 'network' else ''
        assert f'| {perplexity["valid"]:.1f}{best} ' in row and f'| {perplexity["test"]:.1f}{best} ' in row
        assert f'| {perplexity["train"]:.1f} ' in row


def test_runs_on_other_words_are_named_and_have_no_common_best(folders, nplm_command):
    rows, (warning,) = nplm_command('compare', folders / 'counts', folders / 'other')
    assert warning.startswith('other: ') and ' counts; ' in warning
    assert '*' not in '\n'.join(rows)


def test_a_sample_of_the_words_is_ranked_only_with_the_same_sample(folders, nplm_command, tmp_path):
    for name in ('counts', 'network'):
        shutil.copytree(folders / name, tmp_path / name)
    pair = tmp_path / 'counts', tmp_path / 'network'
    sample = {'words': {'valid': 5, 'test': 5}, 'standard_error': {'valid': 0.1, 'test': 0.1}}
    for folder in pair:
        (folder / 'results.json').write_text(json.dumps({**recorded(folder), 'sample': sample}))
        rows, stderr = nplm_command('compare', *pair)
        is_same = folder == tmp_path / 'network'
        assert ('*' in '\n'.join(rows)) == is_same and len(stderr) == (not is_same)


@pytest.mark.parametrize('flag', ['--tokens=whitespace', '--weights=0.5,0.5'])
def test_a_flag_for_a_text_is_refused_without_a_text(flag):
    with refuses(flag.partition('=')[0]) as error:
        all_commands()['compare'].run('compare', ['runs/a', 'runs/b', flag])
    assert '--text' in error.value.problem


def test_a_run_that_is_named_mixture_is_not_taken_for_the_mixture(tmp_path, monkeypatch):
    (tmp_path / 'mixture').mkdir()
    monkeypatch.chdir(tmp_path)
    assert run_table.run_names(['mixture', 'runs/other']) == [str(tmp_path / 'mixture'), 'other']


def test_a_text_is_scored_line_by_line_by_every_run_and_their_mixture(folders, nplm_command, text):
    pair = folders / 'network', folders / 'counts'
    (output,), _ = nplm_command('compare', *pair, f'--text={text}', '--weights=0.8,0.2', '--json')
    found = {entry['name']: entry for entry in json.loads(output)['text']}
    total, words = 0.0, 0
    p = {}
    for folder in pair:
        loaded = loading.load(folder)
        vocabulary, model = loaded.vocabulary, loaded.model
        start = LineStart.of(vocabulary)
        lines = [vocabulary.encode(line.split()) for line in TEXT.strip().split('\n')]
        scored = scoring.score(model, lines, start)
        assert found[folder.name]['perplexity'] == pytest.approx(scoring.total(scored).perplexity)
        p[folder.name] = [10**x for line in scored for x in line.log10_p_T]
    assert {entry['oov'] for entry in found.values()} == {1 / 9}
    total = sum(math.log(0.8 * a + 0.2 * b) for a, b in zip(p['network'], p['counts']))
    words = len(p['network'])
    assert found['mixture']['perplexity'] == pytest.approx(math.exp(-total / words), rel=1e-5)


@pytest.fixture(scope='module')
def punctuated(tmp_path_factory):
    """Two models of a text with separate punctuation, like Brown; one of them is far too flat."""
    root = tmp_path_factory.mktemp('punctuated')
    (root / 'text').write_text('the dog , the cat and my brother . i said " no " ! so dog ; i like the cat .\n\n' * 20)
    for delta in (0.1, 100.0):
        config = text_config.get_config()
        config.corpus.path, config.corpus.tokens = str(root / 'text'), 'whitespace'
        config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2, 'model.delta': delta})
        experiment.run(config, root / f'{delta:g}')
    return root / '0.1', root / '100'


RAW = 'The dog, the cat and my brother. I said “no”! So dog; I like the cat.\n' * 2
CUT = 'the dog , the cat and my brother . i said " no " ! so dog ; i like the cat .\n' * 2


def test_raw_text_is_scored_as_the_same_text_with_its_punctuation_split_off(punctuated, nplm_command, tmp_path):
    found = []
    for name, text in (('raw', RAW), ('cut', CUT)):
        (tmp_path / name).write_text(text)
        flags = f'--text={tmp_path / name}', '--tokens=words', '--json'
        (output,), stderr = nplm_command('compare', *punctuated, *flags)
        scores = json.loads(output)['text']
        found.append([{key: score[key] for key in ('name', 'perplexity', 'oov')} for score in scores])
        assert not stderr
    assert found[0] == found[1] and found[0][0]['oov'] == 0


def test_no_run_is_the_best_on_a_text_of_unknown_words(punctuated, nplm_command, tmp_path):
    (tmp_path / 'text').write_text(RAW)
    last = {}
    for tokens in ('words', 'whitespace'):
        (_, _, *rows), stderr = nplm_command('compare', *punctuated, f'--text={tmp_path}/text', f'--tokens={tokens}')
        last[tokens] = sum(cells(row)[7].endswith('*') for row in rows[:2]), stderr
    assert last['words'] == (1, [])
    assert last['whitespace'][0] == 0 and last['whitespace'][1]


def test_a_text_over_several_vocabularies_has_no_mixture(folders, nplm_command, text, lines):
    pair = folders / 'network', folders / 'other'
    rows, stderr = nplm_command('compare', *pair, f'--text={text}')
    (line,) = (line for line in stderr if line.startswith('other: ') and numbers(line))
    assert 'network' in line and numbers(line) == ['4', '10']
    assert not any('mixture' in row for row in rows)
    with pytest.raises(SystemExit):
        cli.main(['compare', *map(str, pair), f'--text={text}', '--weights=0.5,0.5'])
    assert re.match("--weights='0.5,0.5': .*other: ", lines()[1][-1])


def test_the_figure_has_the_perplexity_of_the_text_and_of_the_mixture(
    folders, nplm_command, text, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(run_table, 'save_figure', lambda figure, path: drawn.append(figure))
    pair = folders / 'network', folders / 'counts'
    (output,), _ = nplm_command('compare', *pair, f'--text={text}', '--json', f'--figure={tmp_path}/a.png')
    axes = drawn[0].axes[-1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ['network', 'counts', 'mixture']
    bars = {container.get_label(): container.datavalues.tolist() for container in axes.containers}
    assert list(bars) == ['valid', 'test', 'text, 11.1% unknown']
    scores = json.loads(output)['text']
    assert bars['text, 11.1% unknown'] == pytest.approx([score['perplexity'] for score in scores])
    assert bars['test'] == [recorded(folder)['perplexity']['test'] for folder in pair]


def test_the_figure_is_drawn(folders, nplm_command, tmp_path):
    nplm_command('compare', folders / 'network', folders / 'counts', folders / 'other', f'--figure={tmp_path}/a.png')
    assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')
    nplm_command('compare', folders / 'counts', f'--figure={tmp_path}/b.png')  # no learning curve
    assert (tmp_path / 'b.png').exists()


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--weights=1,0'], "--weights='1,0':"),
        (['--figure=a.jpg'], "--figure='a.jpg':"),
        (['--text=/nowhere'], "--text='/nowhere':"),
    ],
)
def test_one_clear_line_and_exit_code_two(folders, lines, flags, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(['compare', str(folders / 'network'), *flags])
    assert stop.value.code == 2 and lines()[1][-1].startswith(message)


def test_a_text_of_marks_alone_has_no_words(folders, lines, tmp_path):
    (tmp_path / 'text').write_text('<s> </s>\n')
    with pytest.raises(SystemExit) as stop:
        cli.main(['compare', str(folders / 'counts'), f'--text={tmp_path}/text', '--tokens=whitespace'])
    assert stop.value.code == 2 and lines()[1][-1].startswith('--text=')


# --- runs and info ---------------------------------------------------------------------------------------


def test_the_list_has_finished_unfinished_and_damaged_runs(folders, nplm_command, tmp_path):
    root = tmp_path / 'runs'
    shutil.copytree(folders / 'network', root / 'sweep' / 'network')
    shutil.copytree(folders / 'counts', root / 'counts')
    shutil.copytree(folders / 'network', root / 'unfinished')
    (root / 'unfinished' / 'results.json').unlink()
    shutil.copytree(folders / 'counts', root / 'broken')
    (root / 'broken' / 'config.json').write_text('{')
    (_, _, *rows), _ = nplm_command('runs', root)
    assert [cells(row)[0] for row in rows[:3]] == [
        f'{root}/{name}' for name in ('counts', 'sweep/network', 'unfinished')
    ]
    assert [' * ' in row for row in rows[:3]] == [False, True, False] and 'not finished' in rows[2]
    assert rows[3] == '' and rows[4].startswith('* marks')
    assert rows[5].startswith(f'{root}/broken/config.json: ') and len(rows) == 6
    (output,), _ = nplm_command('runs', root, '--json')
    found = json.loads(output)
    assert [run['state'] for run in found['runs']] == ['finished', 'finished', 'not finished']
    assert found['runs'][0]['perplexity'] == recorded(folders / 'counts')['perplexity'] and len(found['damaged']) == 1


def test_the_best_of_each_text_is_its_own():
    best = run_table.best_rows([3.0, 2.0, 9.0, 8.0, None, 1.0], ['a', 'a', 'b', 'b', 'b', 'c'])
    assert best == {1, 3}


def test_an_infinite_perplexity_is_never_the_best():
    assert run_table.best_rows([math.inf, math.inf, math.inf, 9.0], ['a', 'a', 'b', 'b']) == {3}


def test_a_folder_without_runs(tmp_path, nplm_command, lines):
    assert nplm_command('runs', tmp_path)[0] == [f'{tmp_path}: contains no runs']
    with pytest.raises(SystemExit):
        cli.main(['runs', '/nowhere'])
    assert lines()[1][0].startswith("DIR='/nowhere': ")


def test_info_shows_what_the_files_say(folders, nplm_command):
    rows, _ = nplm_command('info', folders / 'network')
    text, results = '\n'.join(rows), recorded(folders / 'network')
    assert rows[0].startswith('sentences: finished, ') and f'vocabulary: {results["vocabulary"]} words' in text
    assert f'| {results["perplexity"]["valid"]:.1f} ' in text and f'  updates = {results["updates"]}' in rows
    assert f"  commit = '{results['commit']}'" in rows and '  model.h = 5' in rows and "  model.family = 'nplm'" in rows
    assert 'results.json' in text and 'trigram, learned' in text
    (output,), _ = nplm_command('info', folders / 'network', '--json')
    info = json.loads(output)
    config = json.loads((folders / 'network' / 'config.json').read_text())
    assert {'format': records.FORMAT, **info['config'], 'sha256': config['sha256']} == config
    assert info['results'] == results and info['files']['vocabulary.txt'] > 0


@pytest.mark.parametrize('count_over,counted', [('all', 'text'), ('train', 'training words')])
def test_info_names_the_words_of_which_rare_is_a_share(count_over, counted):
    words = {'size': 9, 'rare_share': 0.25, 'unit': 'words', 'most_frequent': None}
    info = {'vocabulary': words, 'results': {}, 'files': {}, 'config': {}, 'name': '', 'state': '', 'date': ''}
    config = config_lib.override(config_lib.default_config(), {'corpus.count_over': count_over})
    text = info_command.make_text(info | {'folder': ''}, experiment.load_settings(config))
    assert f'9 words, with <rare> as 25.0% of the {counted}\n' in text


def test_info_of_a_run_that_is_not_finished(folders, nplm_command, tmp_path):
    shutil.copy(folders / 'network' / 'config.json', tmp_path)
    rows, _ = nplm_command('info', tmp_path)
    assert rows[0].startswith('sentences: not finished, ') and '  model.h = 5' in rows


@pytest.fixture(scope='module')
def same_text(tmp_path_factory):
    """Runs on the same lower-case text: only known words, bytes, and words some of which are unknown."""
    root = tmp_path_factory.mktemp('tokens')
    sentence = 'the cat sat on the mat , and the dog ran . '
    (root / 'text.txt').write_text((sentence * 12).strip() + '\n')
    choices = {'corpus.path': str(root / 'text.txt'), 'model.family': 'modified_kneser_ney', 'model.n': 3}
    split = {'corpus.train': 96, 'corpus.valid': 18}
    words = {'corpus.tokens': 'whitespace', 'corpus.lowercase': False, 'corpus.boundary_tokens': False}
    rows = {
        'words': {**words, 'corpus.min_count': 1},
        'bytes': {'corpus.tokens': 'bytes', 'corpus.boundary_tokens': False},
        'rare': {**words, 'corpus.min_count': 1, 'corpus.max_vocabulary': 6},
    }
    for name, row in rows.items():
        config = config_lib.override(text_config.get_config(), {**choices, **split, **row})
        experiment.run(config, root / name)
    return root


def test_runs_of_words_and_bytes_are_compared_by_bits_per_byte(same_text, nplm_command):
    (header, _, *rows, _, _), (warning,) = nplm_command('compare', same_text / 'words', same_text / 'bytes')
    results = [recorded(same_text / name) for name in ('words', 'bytes')]
    columns = list(zip(*map(cells, rows)))
    bits = [r['bits_per_byte']['test'] for r in results]
    best = bits.index(min(bits))
    shown = columns[cells(header).index('bits/byte')]
    assert shown[best] == f'{bits[best]:.3f} *' and shown[1 - best] == f'{bits[1 - best]:.3f}'
    assert '*' not in ''.join(columns[cells(header).index('test')])
    assert '\n' not in warning
    for result in results:
        size, tokens = result['sizes']['test'], result['words']['test']
        nll = tokens * math.log(result['perplexity']['test'])
        assert result['bits_per_byte']['test'] == pytest.approx(nll / math.log(2) / size['utf8_bytes'])
        assert result['perplexity_per_word']['test'] == pytest.approx(math.exp(nll / size['words']))
        assert size['tokens'] == tokens
    assert results[0]['sizes']['test']['words'] == results[1]['sizes']['test']['words'] == 30


def test_subwords_of_two_vocabularies_are_compared_by_bits_per_byte(same_text, nplm_command, tmp_path):
    shutil.copytree(same_text / 'bytes', tmp_path / 'other')
    record = json.loads((tmp_path / 'other' / 'corpus.json').read_text()) | {'sha256': 'of other tokens'}
    (tmp_path / 'other' / 'corpus.json').write_text(json.dumps(record))
    (header, _, *rows), (warning,) = nplm_command('compare', same_text / 'bytes', tmp_path / 'other')
    assert '*' in cells(rows[0])[cells(header).index('bits/byte')] and 'bits per byte are comparable' in warning


def test_what_cannot_be_compared_is_not_ranked(same_text, nplm_command):
    rows, (warning,) = nplm_command('compare', same_text / 'rare', same_text / 'bytes')
    assert '*' not in '\n'.join(rows) and '; rare: ' in warning
    assert 'bits_per_byte' not in recorded(same_text / 'rare')

    shutil.copytree(same_text / 'bytes', same_text / 'old')
    record = json.loads((same_text / 'old' / 'corpus.json').read_text())
    del record['test_sha256']
    (same_text / 'old' / 'corpus.json').write_text(json.dumps(record))
    rows, (warning,) = nplm_command('compare', same_text / 'words', same_text / 'old')
    assert '*' not in '\n'.join(rows) and 'old' in warning and 'rare' not in warning


def test_a_text_with_one_other_letter_is_another_text(same_text, nplm_command):
    path = same_text / 'other.txt'
    content = (same_text / 'text.txt').read_text().rstrip()
    path.write_text(content[:-1] + ('x' if content[-1] != 'x' else 'y') + '\n')
    config = config_lib.override(text_config.get_config(), {'model.family': 'add_delta', 'model.n': 2})
    recorded_corpus = json.loads((same_text / 'bytes' / 'config.json').read_text())['corpus']
    changes = {f'corpus.{key}': recorded_corpus[key] for key in ('tokens', 'train', 'valid')}
    experiment.run(config_lib.override(config, {**changes, 'corpus.path': str(path)}), same_text / 'letter')
    rows, (warning,) = nplm_command('compare', same_text / 'words', same_text / 'letter')
    assert '*' not in '\n'.join(rows) and 'letter' in warning


def test_a_text_is_compared_by_its_bits_per_byte(same_text, nplm_command, tmp_path):
    (tmp_path / 'text').write_text('the dog sat .\n')
    runs = same_text / 'words', same_text / 'bytes'
    (output,), _ = nplm_command('compare', *runs, f'--text={tmp_path / "text"}', '--json')
    for folder, entry in zip(runs, json.loads(output)['text']):
        loaded = loading.load(folder)
        vocabulary, model = loaded.vocabulary, loaded.model
        ids = vocabulary.encode(vocabulary.tokenize('the dog sat .'))
        (line,) = scoring.score(model, [ids], LineStart.of(vocabulary))
        assert entry['bits_per_byte'] == pytest.approx(-line.log10_p_T.sum() * math.log2(10) / 13)
    (header, _, *rows), _ = nplm_command('compare', *runs, f'--text={tmp_path / "text"}')
    assert 'text bits/byte' in header and '\n'.join(rows).count(' *') >= 1


def test_a_text_with_repeated_spaces_is_not_compared_by_its_bits_per_byte(same_text, nplm_command, tmp_path):
    runs = same_text / 'words', same_text / 'bytes'
    for spaces, are_compared in ((' ', True), ('  ', False), ('\t ', False)):
        (tmp_path / 'text').write_text('the dog sat .\n'.replace(' ', spaces))
        (header, _, *rows), stderr = nplm_command('compare', *runs, f'--text={tmp_path / "text"}')
        column = [cells(row)[cells(header).index('text bits/byte')] for row in rows[:2]]
        assert ('*' in ''.join(column)) == are_compared
        assert any(line.startswith('bits per byte are not comparable') for line in stderr) != are_compared


def test_a_text_that_the_words_of_a_run_change_is_not_compared(same_text, nplm_command, tmp_path):
    choices = {'corpus.path': str(same_text / 'text.txt'), 'corpus.tokens': 'whitespace', 'corpus.min_count': 1}
    changes = {'corpus.boundary_tokens': False, 'model.family': 'add_delta', 'model.n': 2}
    experiment.run(config_lib.override(text_config.get_config(), choices | changes), tmp_path / 'lower')
    runs = tmp_path / 'lower', same_text / 'bytes'
    for text, is_kept in (('the dog sat .\n', True), ('The dog sat .\n', False), ('<s> the dog sat .\n', False)):
        (tmp_path / 'text').write_text(text)
        flag = f'--text={tmp_path / "text"}'
        (output,), stderr = nplm_command('compare', *runs, flag, '--json')
        lower, _ = json.loads(output)['text']
        assert lower['oov'] == 0 and (lower['bits_per_byte'] is not None) == is_kept
        assert any(line.startswith('lower: bits per byte are omitted') for line in stderr) != is_kept
        (header, _, *rows), _ = nplm_command('compare', *runs, flag)
        column = [cells(row)[cells(header).index('text bits/byte')] for row in rows[:2]]
        assert ('*' in ''.join(column)) == is_kept


def test_a_text_of_which_runs_count_other_words_is_not_compared(nplm_command, tmp_path):
    (tmp_path / 'text').write_text('the cat sat, the dog ran.\n' * 3)
    choices = dict.fromkeys(('corpus.path', 'corpus.valid_path', 'corpus.test_path'), str(tmp_path / 'text'))
    changes = {'corpus.boundary_tokens': False, 'model.family': 'add_delta', 'model.n': 2}
    for name, row in (('words', {'corpus.min_count': 1}), ('bytes', {})):
        config = config_lib.override(text_config.get_config(), choices | changes | {'corpus.tokens': name} | row)
        experiment.run(config, tmp_path / name)
    runs = tmp_path / 'words', tmp_path / 'bytes'
    sizes = [recorded(run)['sizes']['test'] for run in runs]
    assert [(size['words'], size['utf8_bytes']) for size in sizes] == [(24, 84), (18, 78)]
    rows, (warning,) = nplm_command('compare', *runs)
    assert (
        'bits/byte' in rows[0]
        and '*' not in '\n'.join(rows)
        and ', nor are the bits per byte of bytes with those of words, ' in warning
    )
    shutil.copytree(runs[0], tmp_path / 'again')
    rows, (warning,) = nplm_command('compare', *runs, tmp_path / 'again')
    assert ', nor are the bits per byte of bytes with those of words, ' in warning
