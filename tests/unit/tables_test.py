"""The tables of the READMEs are what their scripts print."""

import json
import shutil

import pytest
from helpers import ROOT, refuses
from studies import start

from experiments.cheaper import table as cheaper
from experiments.table1 import table as table1
from experiments.table2 import table as table2
from nplm_jax.reporting.text import markdown_table


def test_the_table_of_cheaper_gradients_is_the_scripts_output():
    readme = (ROOT / 'experiments' / 'cheaper' / 'README.md').read_text()
    assert markdown_table(cheaper.HEADER, cheaper.rows()) in readme


def test_table_2_is_the_scripts_output_and_no_row_may_miss(tmp_path):
    readme = (ROOT / 'experiments' / 'table2' / 'README.md').read_text()
    assert table2.make() in readme
    for file in table2.RESULTS.glob('*.json'):
        shutil.copy(file, tmp_path)
    assert table2.rows(tmp_path) == table2.rows()
    (tmp_path / 'kneser_ney_4.json').unlink()
    with refuses('kneser_ney_4.json'):
        table2.rows(tmp_path)


def test_table_2_shows_a_networks_fixed_mixture(tmp_path):
    for file in table2.RESULTS.glob('*.json'):
        shutil.copy(file, tmp_path)
    mixed = {'fixed': {'valid': 1.25, 'test': 2.5}}
    results = {'perplexity': {'valid': 8.0, 'test': 9.0}, 'mixture': mixed}
    (tmp_path / 'mlp10.json').write_text(json.dumps(results))
    assert table2.rows(tmp_path)[0][4:6] == ['1.2', '2.5']


TABLES = [
    ('README.md', 'frontier.table --summary'),
    ('docs/howto/tables.md', 'table1.table --short'),
    ('experiments/table1/README.md', 'table1.table'),
    ('experiments/table1/README.md', 'table1.table --seeds'),
    ('experiments/table1/README.md', 'table1.sweep'),
    ('experiments/recurrent/README.md', 'recurrent.table'),
    ('experiments/frontier/README.md', 'frontier.table'),
    ('experiments/frontier/README.md', 'frontier.calibration'),
    ('experiments/frontier/README.md', 'frontier.ingredients'),
    ('experiments/frontier/README.md', 'frontier.tuning'),
    ('experiments/frontier/README.md', 'frontier.torch_recipes --show'),
    ('experiments/frontier/README.md', 'frontier.table --seeds'),
    ('experiments/frontier/README.md', 'frontier.minutes --show'),
    ('experiments/lineage/README.md', 'lineage.table'),
    ('experiments/wikitext2/README.md', 'wikitext2.table'),
    ('experiments/section5/trees.md', 'section5.trees'),
    ('experiments/section5/energy.md', 'section5.energy'),
    ('experiments/scale/README.md', 'scale.preparation'),
    ('experiments/scale/README.md', 'scale.preparation --tokens=pieces'),
    ('experiments/scale/README.md', 'scale.training'),
    ('experiments/scale/README.md', 'scale.tables'),
    ('experiments/scale/README.md', 'scale.cluster'),
    ('experiments/scale/README.md', 'scale.cold'),
    ('experiments/accelerator/README.md', 'accelerator.compile --show'),
    ('experiments/accelerator/README.md', 'accelerator.roofline'),
    ('experiments/accelerator/README.md', 'accelerator.half_peak --show'),
    ('experiments/accelerator/README.md', 'accelerator.race --show'),
    ('experiments/search/README.md', 'search.study --show'),
    ('experiments/pruning/README.md', 'pruning.study'),
    ('experiments/decoding/README.md', 'decoding.study'),
    ('experiments/decoding/README.md', 'decoding.searches'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.harness'),
    ('experiments/reading_times/README.md', 'reading_times.table'),
    ('experiments/reading_times/README.md', 'reading_times.table --questions'),
    ('experiments/soak/README.md', 'soak.soak'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.table'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.table --paradigms'),
    ('experiments/similarity/README.md', 'similarity.table'),
    ('experiments/speed/README.md', 'speed.forms --show'),
    ('experiments/speed/README.md', 'speed.race --show'),
    ('experiments/speed/README.md', 'speed.race --show --output=experiments/speed/results/race_amx.json'),
    ('experiments/speed/README.md', 'speed.quality --show'),
    ('experiments/speed/README.md', 'speed.scaling --show'),
    ('experiments/speed/README.md', 'speed.vectorize --show'),
    ('experiments/speed/README.md', 'speed.history'),
    ('experiments/speed/README.md', 'speed.next_words --show'),
    ('experiments/speed/README.md', 'speed.queries --show'),
    ('docs/howto/export.md', 'speed.onnx_tokens --show'),
    ('experiments/generalization/README.md', 'generalization.study --show'),
    ('experiments/parallel/README.md', 'parallel.table'),
    ('experiments/section5/new_words.md', 'section5.new_words --show'),
    ('experiments/section5/open_vocabulary.md', 'section5.open_vocabulary_table'),
    ('experiments/section5/priors.md', 'section5.priors --show'),
    ('experiments/section5/senses.md', 'section5.senses --show'),
    ('experiments/tokens/README.md', 'tokens.table'),
]


@pytest.mark.parametrize('file,script', TABLES)
def test_the_tables_are_the_scripts_output(file, script, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    module, *words = script.split()
    assert start(f'experiments.{module}', words) == 0
    page = (ROOT / file).read_text()
    for table in capsys.readouterr().out.strip().split('\n\n'):  # a page may have text between them
        assert table in page


def test_a_row_that_is_missing_or_another_runs_is_refused(tmp_path, monkeypatch):
    (tmp_path / 'results').mkdir()
    for file in (table1.HERE / 'results').glob('*.json'):
        shutil.copy(file, tmp_path / 'results')
    monkeypatch.setattr(table1, 'HERE', tmp_path)
    assert len(table1.rows()) == 8 * 4 + 14
    shutil.copy(tmp_path / 'results' / 'mlp3.json', tmp_path / 'results' / 'mlp1.json')
    with refuses('results/mlp1.json'):
        table1.rows()
    (tmp_path / 'results' / 'classes_150.json').unlink()
    (tmp_path / 'results' / 'mlp1.json').unlink()
    with refuses('results/mlp1.json'):
        table1.rows()
