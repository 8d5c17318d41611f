"""Tests that links, generated tables, measured numbers and examples in the documentation agree with the code."""

import ast
import doctest
import functools
import importlib
import itertools
import json
import math
import pathlib
import re
import statistics
import tomllib

import pytest
import yaml
from helpers import ROOT

from experiments import origins, results
from nplm_jax import __version__
from nplm_jax.reporting import catalog
from nplm_jax.training import chips
from tools import reference_pages

EQUATION_LINK = re.compile(r'\[([\w.]+)\]\(\.\./([\w/]+\.py)\)')
LINK = re.compile(r'(?<!`)\[[^\]]*\]\(([^)\s]+)\)|<img src="([^"]+)"')
FOLDERS = ('docs', 'experiments', 'tests', 'tools')
PAGES = [*ROOT.glob('*.md'), *(p for f in FOLDERS for end in ('md', 'ipynb') for p in (ROOT / f).rglob(f'*.{end}'))]
EXAMPLES = [path for path in sorted((ROOT / 'nplm_jax').rglob('*.py')) if '>>> ' in path.read_text()]


@pytest.mark.parametrize('name,path', EQUATION_LINK.findall((ROOT / 'docs' / 'equations.md').read_text()))
def test_every_equation_links_to_a_function_that_exists(name, path):
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f'{node.name}.{m.name}' for m in node.body if isinstance(m, ast.FunctionDef)}
    assert name in names


def _prose(page: pathlib.Path) -> str:
    """Returns the Markdown of a page or notebook without its blocks of code."""
    text = page.read_text()
    if page.suffix == '.ipynb':
        text = '\n'.join(''.join(c['source']) for c in json.loads(text)['cells'] if c['cell_type'] == 'markdown')
    return re.sub(r'^(```|~~~).*?^\1', '', text, flags=re.DOTALL | re.MULTILINE)


@functools.cache
def _anchors(page: pathlib.Path) -> set[str]:
    """Returns the anchors of a page's headings, by GitHub's rule; MyST has anchors down to the third level only."""
    anchors: list[str] = []
    for heading in re.findall(r'^#{1,3} +(.*?) *$', _prose(page), re.MULTILINE):
        title = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).lower()
        anchor = re.sub(r'[^\w\- ]', '', title).replace(' ', '-')
        same = sum(re.fullmatch(rf'{anchor}(-\d+)?', other) is not None for other in anchors)
        anchors.append(f'{anchor}-{same}' if same else anchor)
    return set(anchors)


@pytest.mark.parametrize('page', PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    wrong = []
    for target in {link or image for link, image in LINK.findall(_prose(page))}:
        name, _, anchor = target.partition('#')
        path = page.parent / name if name else page
        if '://' not in target and not (path.exists() and (not anchor or anchor in _anchors(path))):
            wrong.append(target)
    assert wrong == []


def test_every_page_is_in_the_contents():
    index = ROOT / 'docs' / 'index.md'
    contents = ''.join(re.findall(r'```{toctree}(.*?)```', index.read_text(), re.DOTALL))
    listed = {(index.parent / name).resolve() for name in re.findall(r'^[\w./-]+$', contents, re.MULTILINE)}
    assert [str(page) for page in PAGES if page != index and page.with_suffix('') not in listed] == []


def test_every_page_that_the_code_names_exists():
    code = [path.read_text() for path in (ROOT / 'nplm_jax').rglob('*.py')]
    named = {page for text in code for page in re.findall(r'\bdocs/[\w/]+\.md', text)}
    assert named and [page for page in named if not (ROOT / page).is_file()] == []


@pytest.mark.parametrize('page', reference_pages.PAGES)
def test_a_generated_table_is_up_to_date(page):
    found = reference_pages.parts(page)
    assert found
    for name, (written, generated) in found.items():
        assert written == generated, f'{page}, {name}: run `python -m tools.reference_pages`'


def _first_column(page: str) -> set[str]:
    """Returns the names in the first column of the page's tables."""
    rows = re.findall(r'^\| (`.*?) \|', (ROOT / 'docs' / 'reference' / page).read_text(), re.MULTILINE)
    return {name.rstrip('/') for row in rows for name in re.findall(r'`([^`]+)`', row)}


def test_the_reference_names_every_file_and_result_of_a_run(folders):
    results, files = set(), set()
    for run in (folders / 'network', folders / 'counts'):
        results |= json.loads((run / 'results.json').read_text()).keys()
        files |= {path.name for path in run.iterdir()}
    results |= {'postprocessing', 'imported', 'sha256'}  # of a calibrated network, and of an ARPA file
    assert results | files | {catalog.MINUTES} <= _first_column('results.md') | _first_column('files.md')


def _rows(page: str) -> list[list[str]]:
    """Returns the cells of the rows of a page's tables."""
    lines = (ROOT / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines if line.startswith('|')]


def _table(page: str, header: str) -> dict[str, list[str]]:
    """Returns the rows of the page's last table that starts with `header`, by their first cell."""
    (table,) = re.findall(rf'^\| {header} .*\n\|[-| ]+\n((?:\|.*\n)+)', (ROOT / page).read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_table_of_models_to_choose_from_has_the_numbers_of_the_studies():
    page = 'docs/howto/which_model.md'
    folders = dict.fromkeys(('modified_kneser_ney_5', 'mlp9', 'default'), 'table1')
    for row, seconds, memory, test in _table(page, 'you want').values():
        (name,) = re.findall(r'`(\w+)`', row)
        recorded = results.read(results.folder(folders.get(name, 'frontier')), name)
        digits = 1 if recorded['seconds'] < 1 else 0
        expected = f'{recorded["peak_memory_megabytes"]:,} MB', f'{recorded["perplexity"]["test"]:.1f}'
        assert (seconds, memory, test) == (f'{recorded["seconds"]:,.{digits}f} s', *expected)
    reading = _table('experiments/use/reading_times/README.md', 'model')
    pairs = _table('experiments/use/minimal_pairs/README.md', 'model')
    similarity = (ROOT / 'experiments' / 'use' / 'similarity' / 'README.md').read_text()
    for name, perplexity, gain, accuracy, correlation in ([k, *v] for k, v in _table(page, 'model').items()):
        _, theirs, value, interval, *_ = reading[name]
        assert (perplexity, gain) == (theirs, f'{value} ({interval})')
        assert accuracy == pairs[name][1].partition(' ')[0]
        found = re.findall(rf'^\| {name} +\| C +\|.*?\| (-?0\.\d+) \[', similarity, re.MULTILINE)
        assert found == ([] if correlation == '-' else [correlation])


def test_the_table_of_models_for_reading_experiments_has_the_numbers_of_the_studies():
    times, pairs = (_rows(f'experiments/use/{study}/README.md') for study in ('reading_times', 'minimal_pairs'))
    gains = {row[0]: f'{row[3]} ({row[4]})' for row in times if len(row) == 8}
    correct = {row[0]: row[2].split()[0] for row in pairs if len(row) == 6 and row[1].isdigit()}
    chosen = [row for row in _rows('docs/howto/surprisal.md') if row[0] in correct]
    assert len(chosen) == 8
    assert chosen == [[name, gains[name], correct[name]] for name, *_ in chosen]


def _numbers(page: str, start: str) -> list[str]:
    """Returns the decimal numbers in the sentence of a page that starts with `start`."""
    _, _, rest = ' '.join((ROOT / page).read_text().split()).partition(start)
    return re.findall(r'\d+\.\d+', re.split(r'\.(?!\d)', rest)[0])


def test_sentences_about_recurrent_networks_have_the_numbers_of_the_study():
    lstm, gru = (results.read(results.folder('recurrent'), name)['perplexity'] for name in ('lstm', 'gru'))
    for start, found in {'On Brown, an LSTM reaches': lstm, 'A GRU reaches': gru}.items():
        assert _numbers('docs/howto/tables.md', start) == [f'{found[split]:.1f}' for split in ('valid', 'test')]


def test_sentences_about_wikitext2_have_the_numbers_of_the_study():
    page, names = 'experiments/beyond/wikitext2/README.md', ('one_minute', 'five_minutes', 'twenty_minutes', 'one_hour')
    found = [results.read(results.folder('wikitext2'), name) for name in names]
    shares = [100 - 100 * each['postprocessing']['after'] / each['postprocessing']['before'] for each in found]
    mixed = [each['mixture']['by_frequency']['test'] for each in found]
    assert _numbers(page, 'Calibration lowers the perplexity') == [f'{share:.1f}' for share in shares]
    assert _numbers(page, 'the four networks reach test perplexities') == [f'{test:.1f}' for test in mixed]


def test_sentences_about_longer_training_have_the_numbers_of_the_studies():
    names = 'one_minute', 'five_minutes', 'twenty_minutes'
    tests = [results.read(results.folder('wikitext2'), name)['perplexity']['test'] for name in names]
    expected = [f'{100 - 100 * longer / shorter:.1f}' for shorter, longer in itertools.pairwise(tests)]
    assert _numbers('experiments/beyond/frontier/README.md', 'On WikiText-2, training') == expected


def test_the_sentences_about_the_papers_network_have_the_number_of_the_study():
    expected = f'{results.read(results.folder("table1"), "default")["perplexity"]["test"]:.0f}'
    page = (ROOT / 'README.md').read_text()
    assert re.findall(r"the paper's network reaches (\d+)|perplexity is (\d+):", page) == [
        (expected, ''),
        ('', expected),
    ]


def test_a_sentence_about_queries_has_the_number_of_the_study():
    rates = results.read(results.folder('speed'), 'queries')['words_per_second']['score_lines']
    expected = f'{statistics.median(rates) / 1e6:.1f}'
    assert _numbers('docs/howto/kenlm_details.md', 'For many sentences, use `score_lines`') == [expected]


def test_a_sentence_about_predicted_speeds_has_the_shares_of_the_results():
    entries = results.read(results.folder('accelerator'), 'H100')['entries']
    shares = []
    for bandwidth in (chips.CHIPS[name].memory_bandwidth for name in ('NVIDIA H100 80GB HBM3', 'NVIDIA H200')):
        for row in ('mlp1', 'default', 'transformer'):
            measured = results.read(results.folder('accelerator') / 'race' / 'NVIDIA-H200', f'{row}-4096')
            predicted = 5120 / (entries[f'{row} 1x1 5120']['bytes'] / bandwidth)  # memory limits all of them
            shares.append(f'{statistics.median(measured["words_per_second"]["ours"]) / predicted:.0%}')
    text = (ROOT / 'experiments' / 'cost' / 'accelerator' / 'README.md').read_text()
    assert re.findall(r'\d+%', text.partition('million words/s. That is ')[2])[:6] == shares


def test_the_figure_of_tokens_and_its_page_have_the_numbers_of_the_study():
    figure = (ROOT / 'docs' / '_figures' / 'tokens.svg').read_text()
    page = ' '.join((ROOT / 'docs' / 'explanation' / 'words_and_subwords.md').read_text().split())
    for system, digits in {'words': 0, 'bpe_8192': 0, 'bpe_2048': 1, 'bytes': 1}.items():
        files = results.folder('tokens').glob(f'one_minute-brown-{system}-*.json')
        runs = [json.loads(path.read_text()) for path in files]
        mean = statistics.mean(math.exp(-run['log_p'] / run['tokens']['test']) for run in runs)
        assert f'>{mean:.3g}<' in figure
        assert system.startswith('bpe') or re.search(rf'perplexity per token of \w+ {mean:.{digits}f}\b', page)


@pytest.mark.parametrize('page', sorted((ROOT / 'experiments').rglob('*.md')), ids=lambda path: path.parts[-2])
def test_a_page_says_which_of_the_results_that_it_names_should_not_be_trusted(page):
    text = page.read_text()
    names = {name.rstrip('/') for name in re.findall(r'results/[\w*/]+(?:\.json)?', text)}
    for path in {
        path for name in names for found in page.parent.glob(name) for path in (found, *found.rglob('*.json'))
    }:
        origin = origins.of(json.loads(path.read_text())) if path.suffix == '.json' else origins.of([])
        assert all(f'jaxlib {release}' in text for release in origin.excluded), path
        assert 'uncommitted changes' in text or not origin.is_modified, path


def test_pages_have_the_lengths_that_they_promise():
    assert len((ROOT / 'README.md').read_text().splitlines()) <= 90
    pages = [page for page in PAGES if page.suffix == '.md' and ROOT / 'docs' in page.parents]
    assert [page for page in pages if page.parent.name != 'reference' and len(page.read_text().split()) > 1500] == []
    (lines,) = re.findall(r'implemented in (\d+) lines\]\(nplm_jax/models/nplm.py', (ROOT / 'README.md').read_text())
    assert len((ROOT / 'nplm_jax' / 'models' / 'nplm.py').read_text().splitlines()) <= int(lines)


def test_the_architecture_lists_the_layers_that_are_checked():
    (contract, *_) = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    page = (ROOT / 'docs' / 'architecture.md').read_text()
    (listed,) = re.findall(r'From top to bottom, the subpackages of `nplm_jax/` are (.*?)\.\s', page, re.DOTALL)
    assert re.findall(r'`(\w+)`', listed) == contract['layers'][1:]  # the first is for two modules


@pytest.mark.parametrize('path', EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_in_docstrings_run(path):
    module = importlib.import_module('.'.join(path.relative_to(ROOT).with_suffix('').parts))
    failed, attempted = doctest.testmod(module)
    assert attempted and not failed


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert citation['version'] == citation['preferred-citation']['version'] == __version__
