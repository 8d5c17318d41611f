"""The documentation agrees with the code.

`python -m tests.docs_test` corrects the line numbers in equations.md, and the tables that are made from the code.
"""

import ast
import doctest
import importlib
import json
import pathlib
import re
import statistics
import sys
import tomllib

import pytest
import yaml

from nplm_jax import __version__

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / 'tests'))  # for `python -m`
import reference_docs  # noqa: E402
from deleted_apps import DELETED, went_with_an_app  # noqa: E402

EQUATIONS = ROOT / 'docs' / 'equations.md'
EQUATION_LINK = re.compile(r'\[([\w.]+)\]\(\.\./([\w/]+\.py)#L(\d+)\)')
LINK = re.compile(r'(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)')
PAGES = [
    path for pattern in ('*.md', 'docs/**/*.md', 'experiments/**/*.md', 'tests/**/*.md') for path in ROOT.glob(pattern)
]
EXAMPLES = [path for path in sorted((ROOT / 'nplm_jax').rglob('*.py')) if '>>> ' in path.read_text()]


def definition_line(path: str, name: str) -> int:
    """Returns the line of `def name` or `class name` in a file; of a method also by Class.method."""
    places = {}
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            places[node.name] = node.lineno
        if isinstance(node, ast.ClassDef):
            places |= {f'{node.name}.{m.name}': m.lineno for m in node.body if isinstance(m, ast.FunctionDef)}
    return places[name]


@pytest.mark.parametrize('name,path,line', EQUATION_LINK.findall(EQUATIONS.read_text()))
def test_every_equation_leads_to_the_line_of_its_function(name, path, line):
    if went_with_an_app(path):
        pytest.skip('its app was deleted')
    assert int(line) == definition_line(path, name)


def test_the_main_equations_are_in_the_table():
    names = {name for name, _, _ in EQUATION_LINK.findall(EQUATIONS.read_text())}
    assert {
        'logits',
        'add_weight_decay',
        'paper_schedule',
        'FrequencyBins',
        'map_loss',
        'blockwise_cross_entropy',
    } <= names


@pytest.mark.parametrize('page', PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
    targets = {*LINK.findall(text), *re.findall(r'<img src="([^"]+)"', text)}
    targets = {target.partition('#')[0] for target in targets if '://' not in target}
    missing = {(page.parent / target).resolve().relative_to(ROOT).as_posix() for target in targets if target}
    missing = {path for path in missing if not (ROOT / path).exists()}
    assert {path for path in missing if not went_with_an_app(path)} == set()


def test_every_page_that_the_code_names_is_there():
    code = [path.read_text() for path in (ROOT / 'nplm_jax').rglob('*.py')]
    named = {page for text in code for page in re.findall(r'\bdocs/[\w/]+\.md', text)}
    assert [page for page in named if not (ROOT / page).is_file() and not went_with_an_app(page)] == []


def test_the_page_of_installation_has_every_extra():
    text = (ROOT / 'docs' / 'howto' / 'install.md').read_text()
    extras = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['optional-dependencies']
    assert set(re.findall(r'^\| `pip install -e "\.\[(\w+)\]"`', text, re.MULTILINE)) == set(extras)


def test_every_page_is_in_the_table_of_contents():
    _, *trees = (ROOT / 'docs' / 'index.md').read_text().split('```{toctree}')
    listed = {line for tree in trees for line in tree.partition('```')[0].splitlines() if line and line[0] != ':'}
    pages = {path.relative_to(ROOT / 'docs').with_suffix('').as_posix() for path in ROOT.glob('docs/[a-z]*/*.md')}
    notebooks = {f'../{p.relative_to(ROOT).with_suffix("")}' for p in ROOT.glob('experiments/notebooks/*.ipynb')}
    studies = {f'../{p.relative_to(ROOT).with_suffix("")}' for p in ROOT.glob('experiments/*/README.md')}
    assert pages | notebooks | studies <= listed


@pytest.mark.parametrize('page', reference_docs.PAGES)
def test_what_a_page_takes_from_the_code_is_what_the_code_says(page):
    found = reference_docs.parts(page)
    assert found
    for name, (written, said) in found.items():
        if DELETED:  # the page still has what was made from an app that is gone
            assert set(said.splitlines()) <= set(written.splitlines())
            continue
        assert written == said, f'{page}, {name}: python -m tests.docs_test writes it anew'


def test_every_part_that_is_made_from_the_code_is_on_a_page():
    assert {
        name for page in reference_docs.PAGES for name in reference_docs.parts(page)
    } == reference_docs.MAKERS.keys()


def test_every_module_has_tests():
    untested = re.findall(r'`(.*?)` \| `-`', reference_docs.tests_of_modules())
    assert not untested, f'{untested}: write tests/NAME_test.py, or name the tests that run it in THROUGH_OTHERS'


def test_the_reference_can_be_read_without_building_it():
    for page in ('config', 'commands', 'files', 'results', 'surprisal', 'api'):
        text = (ROOT / 'docs' / 'reference' / f'{page}.md').read_text()
        assert text.count('\n| ') > 10, page


def _first_column(page: str) -> set[str]:
    """Returns the names in the first column of the page's tables."""
    rows = re.findall(r'^\| (`.*?) \|', (ROOT / 'docs' / 'reference' / page).read_text(), re.MULTILINE)
    return {name.rstrip('/') for row in rows for name in re.findall(r'`([^`]+)`', row)}


@pytest.mark.quick
def test_the_reference_names_every_file_and_result_of_a_run(folders):
    results, files = set(), set()
    for run in (folders / 'network', folders / 'counts'):
        results |= json.loads((run / 'results.json').read_text()).keys()
        files |= {path.name for path in run.iterdir()}
    assert _first_column('results.md') - results == {
        'trained_together',
        'evaluated_train_words',
        'calibration_words',
        'sample',
        'lowered',
        'mfu',
    }
    assert _first_column('files.md') - files == {
        'classes.txt',
        'spelling',
        'output.tree',
        'tokenizer.json',
    }
    assert results | files <= _first_column('results.md') | _first_column('files.md')


def _recorded(path: str) -> dict:
    return json.loads((ROOT / 'experiments' / path).read_text())


def _race(row: str, precision: str) -> float:
    """Returns our words a second over those of the faster of PyTorch's two forms, by medians."""
    (raced,) = (r['raced'] for r in _recorded('speed/results/race.json')['rows'] if r['row'] == row)
    speeds = {r['contestant']: statistics.median(r['words_per_second']) for r in raced if r['precision'] == precision}
    return speeds['ours'] / max(speeds['torch_eager'], speeds['torch_compile'])


def test_numbers_in_sentences_are_those_of_committed_results():
    fast_loss, tables = (
        ' '.join((ROOT / 'docs' / page).read_text().split()) for page in ('explanation/fast_loss.md', 'howto/tables.md')
    )
    ratios = [f'{_race(row, precision):.2f}' for precision in ('float32', 'bfloat16') for row in ('mlp1', 'mlp9')]
    assert re.findall(r'\d\.\d\d', fast_loss) == ratios
    seconds = [
        _recorded(f'speed/results/quality_{name}.json')['seconds_to_target']
        for name in ('mlp9-bfloat16-4-epochs', 'mlp9-sampled')
    ]
    assert re.findall(r'(\d+) s\b', fast_loss) == [f'{s:.0f}' for s in seconds]
    lstm, gru = (_recorded(f'recurrent/results/{name}.json')['perplexity'] for name in ('lstm', 'gru'))
    assert f'LSTM reaches {lstm["valid"]:.1f} on validation and {lstm["test"]:.1f} on test' in tables
    assert f'a GRU {gru["valid"]:.1f} and {gru["test"]:.1f}' in tables
    default, minute, residual, twenty = (
        _recorded(f'{name}.json')['perplexity']['test']
        for name in (
            'table1/results/default',
            *(f'frontier/results/{row}' for row in ('one_minute', 'residual', 'twenty_minutes')),
        )
    )
    seconds, longer = (_recorded(f'frontier/results/{row}.json')['seconds'] for row in ('one_minute', 'twenty_minutes'))
    readme = ' '.join((ROOT / 'README.md').read_text().split())
    assert f'test perplexity {default:.0f})' in readme
    assert (
        f'LSTM reaches {minute:.1f} on test in {seconds:.0f} s, a window network {residual:.1f} in four minutes'
        in readme
    )
    assert f'a larger Mogrifier LSTM {twenty:.1f} in {longer / 60:.0f} minutes' in readme


def _table(path: str, header: str) -> dict[str, list[str]]:
    """Returns the rows of the page's table that starts with `header`, by their first cell; of several, the last."""
    (table,) = re.findall(rf'^\| {header} .*\n\|[-| ]+\n((?:\|.*\n)+)', (ROOT / path).read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_choice_of_a_model_has_the_numbers_of_the_studies():
    page = 'docs/howto/which_model.md'
    folders = dict.fromkeys(('modified_kneser_ney_5', 'mlp9', 'default'), 'table1')
    for row, seconds, memory, test in _table(page, 'you want').values():
        (name,) = re.findall(r'`(\w+)`', row)
        recorded = _recorded(f'{folders.get(name, "frontier")}/results/{name}.json')
        expected = f'{recorded["peak_memory_megabytes"]:,} MB', f'{recorded["perplexity"]["test"]:.1f}'
        digits = 1 if recorded['seconds'] < 1 else 0
        assert (seconds, memory, test) == (f'{recorded["seconds"]:,.{digits}f} s', *expected)
    reading = _table('experiments/reading_times/README.md', 'model')
    pairs = _table('experiments/minimal_pairs/README.md', 'model')
    similarity = (ROOT / 'experiments' / 'similarity' / 'README.md').read_text()
    for name, perplexity, gain, accuracy, correlation in ([k, *v] for k, v in _table(page, 'model').items()):
        _, _, theirs, value, interval, *_ = reading[name]
        assert (perplexity, gain) == (theirs, f'{value} ({interval})')
        assert accuracy == pairs[name][1].partition(' ')[0]
        found = re.findall(rf'^\| {name} +\| C +\|.*?\| (-?0\.\d+) \[', similarity, re.MULTILINE)
        assert found == ([] if correlation == '-' else [correlation])


def _rows(page: str) -> list[list[str]]:
    """Returns the cells of the rows of a page's tables."""
    lines = (ROOT / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines if line.startswith('|')]


def test_the_models_for_a_reading_experiment_have_the_numbers_of_the_studies():
    times, pairs = (_rows(f'experiments/{study}/README.md') for study in ('reading_times', 'minimal_pairs'))
    gains = {row[0]: f'{row[4]} ({row[5]})' for row in times if row[1:2] == ['800,000']}
    gains |= {row[0]: f'{row[1]} ({row[2]})' for row in times if len(row) == 3}
    correct = {row[0]: row[2].split()[0] for row in pairs if len(row) == 6 and row[1].isdigit()}
    chosen = [row for row in _rows('docs/howto/surprisal.md') if row[0] in correct]
    assert len(chosen) == 8
    assert chosen == [[name, gains[name], correct[name]] for name, *_ in chosen]
    text = ' '.join((ROOT / 'docs/howto/surprisal.md').read_text().split())
    assert f'{gains["lstm on 800,000 minus modified_kneser_ney_5 on 800,000"]} more than' in text
    assert f'the lstm {gains["lstm on 800,000 minus lstm on 100,000"].split()[0]} more' in text


def test_the_messages_of_the_page_of_troubleshooting_are_those_of_the_code():
    page = (ROOT / 'docs' / 'howto' / 'troubleshooting.md').read_text()
    if DELETED:
        pytest.skip('some are of an app that was deleted')
    messages = re.findall(r'^\| `(.*?)` \| ', page, re.MULTILINE)
    assert len(messages) > 20
    trees = [
        ast.parse(path.read_text()) for folder in ('nplm_jax', 'configs') for path in (ROOT / folder).rglob('*.py')
    ]
    strings = {n.value for t in trees for n in ast.walk(t) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    said = '\n'.join(strings)
    for message in messages:
        parts = [part.strip(' :;=') for part in message.split('...')]  # a value stands between two parts
        assert max(map(len, parts)) > 10 and [part for part in parts if part not in said] == [], message


@pytest.mark.parametrize('path', EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_in_docstrings_run(path):
    module = importlib.import_module('.'.join(path.relative_to(ROOT).with_suffix('').parts))
    failed, attempted = doctest.testmod(module)
    assert attempted and not failed


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert {'cff-version', 'message', 'title', 'authors', 'references'} <= citation.keys()
    assert citation['version'] == citation['preferred-citation']['version'] == __version__


def main() -> None:
    """Writes the right line numbers, and what the code says."""
    text = EQUATION_LINK.sub(lambda m: f'[{m[1]}](../{m[2]}#L{definition_line(m[2], m[1])})', EQUATIONS.read_text())
    EQUATIONS.write_text(text)
    for page in reference_docs.PAGES:
        reference_docs.write(page)


if __name__ == '__main__':
    main()
