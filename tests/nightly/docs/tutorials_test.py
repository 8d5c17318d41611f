"""Runs the tutorials' code on small texts and, with the marker nightly, unchanged in a Jupyter kernel."""

import json
import re
import tempfile

import jax
import matplotlib
import matplotlib.pyplot as plt
import pytest
from helpers import ROOT, usual_environment

FOLDER = ROOT / 'docs' / 'tutorials'
TUTORIALS = sorted(FOLDER.glob('*.ipynb'))
LONG = 'from_2003_to_the_transformer'  # the documentation build does not run it
_LEFT_OUT = 'batches sampled moments regularised residual averages tied transformer_n lstm'.split()
LITTLE = {  # replaces values in the cell tagged `parameters`
    'your_first_model': {'EPOCHS': 1},
    'the_paper_in_one_file': {'LAST': 438, 'EPOCHS': 1},
    'surprisal_for_an_experiment': {'EPOCHS': 1},
    'from_kenlm_to_a_neural_rescorer': {'SENTENCES': 20, 'HYPOTHESES': 20, 'EPOCHS': 1},
    'ngrams_with_exercises': {},
    LONG: {'LAST': 436, 'PASSES': 1, 'LEAVE_OUT': _LEFT_OUT, 'CONTEXTS': (1, 60), 'PLACES': 20},
}
NEEDS = {'surprisal_for_an_experiment': 'statsmodels'}  # installed by pip install ".[studies]"

each_tutorial = pytest.mark.parametrize('path', TUTORIALS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in json.loads(path.read_text(encoding='utf-8'))['cells'] if cell['cell_type'] == 'code']


def skip_without_package(path):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason='needs pip install ".[studies]"')


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Returns a function that runs the code of a tutorial with other parameter values and returns its namespace."""
    figures = []

    def show():
        plt.gcf().canvas.draw()
        figures.extend(plt.get_fignums())
        plt.close('all')

    def run(path, parameters):
        namespace = {}
        with matplotlib.rc_context({'backend': 'Agg'}), jax.numpy_rank_promotion('allow'):
            for number, cell in enumerate(code_cells(path), start=1):
                exec(compile(''.join(cell['source']), f'{path.name}, code cell {number}', 'exec'), namespace)
                if 'parameters' in cell['metadata'].get('tags', ()):
                    assert parameters.keys() <= namespace.keys()
                    namespace |= parameters
        assert parameters.items() <= namespace.items()  # a cell has the tag `parameters`
        assert figures
        return namespace

    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    monkeypatch.setattr(plt, 'show', show)
    monkeypatch.syspath_prepend(str(FOLDER))  # for the modules that tutorials import
    return run


@each_tutorial
def test_the_code_runs(path, run):
    skip_without_package(path)
    run(path, LITTLE[path.stem])


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_a_text_of_the_readers_own_goes_through(run, tmp_path):
    paragraphs = (f'The jury said that it was over on day {i}. Nobody asked number {i % 7} why.' for i in range(150))
    (tmp_path / 'own.txt').write_text('\n\n'.join(paragraphs), encoding='utf-8')
    path = FOLDER / 'your_first_model.ipynb'
    names = run(path, {'TEXT': str(tmp_path / 'own.txt'), 'SENTENCE': 'The jury said it was over.', 'EPOCHS': 1})
    assert names['sentence'] == ['the', 'jury', 'said', 'it', 'was', 'over', '.']
    assert names['words'].counts[0] > 100 and 'macdonald' not in names['words'].ids


def test_the_paper_reads_another_text_without_brown(run, monkeypatch, tmp_path, capsys):
    path = FOLDER / 'the_paper_in_one_file.ipynb'
    monkeypatch.setenv('NLTK_DATA', str(tmp_path))
    monkeypatch.setenv('HOME', str(tmp_path))
    names = run(path, {'EPOCHS': 1})
    assert 'python' in names['id_of'] and 'NLTK_DATA' in capsys.readouterr().out


def test_rescoring_lowers_the_word_error_rate(run):
    names = run(FOLDER / 'from_kenlm_to_a_neural_rescorer.ipynb', LITTLE['from_kenlm_to_a_neural_rescorer'])
    rates = {name: rate for name, _, rate in names['rows']}
    assert rates['oracle'] <= min(rates['trigram'], rates['mixture'])
    assert max(rates['trigram'], rates['mixture']) < rates['recogniser alone']


@each_tutorial
def test_outputs_are_committed_only_where_the_build_of_the_docs_does_not_run_it(path):
    cells = code_cells(path)
    if path.stem == LONG:
        assert [cell['execution_count'] for cell in cells] == list(range(1, len(cells) + 1))
        text = re.sub(r'"image/png": "[^"]*"', '', path.read_text(encoding='utf-8'))
        assert not re.search(r'/(tmp|home|root|work|Users|usr|var)\b', text)
    else:
        assert all(cell['execution_count'] is None and cell['outputs'] == [] for cell in cells)


@pytest.mark.nightly
@each_tutorial
def test_it_runs_in_a_kernel(path, tmp_path):
    nbclient = pytest.importorskip('nbclient', reason='needs pip install ".[notebooks]"')
    pytest.importorskip('ipykernel', reason='needs pip install ".[notebooks]"')
    skip_without_package(path)
    import nbformat  # noqa: PLC0415 (comes with nbclient)

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    places = {'PYTHONPATH': f'{ROOT}:{FOLDER}', 'TMPDIR': str(tmp_path)}
    client = nbclient.NotebookClient(notebook, timeout=900, resources={'metadata': {'path': str(tmp_path)}})
    client.execute(env={**usual_environment(), **places})  # saves minutes compared with the tests' compiler flags
