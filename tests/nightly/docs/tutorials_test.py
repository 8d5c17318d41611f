"""The notebooks run: their code here on little text; unchanged in a Jupyter kernel under the marker nightly."""

import json
import re
import tempfile

import matplotlib
import matplotlib.pyplot as plt
import pytest
from helpers import ROOT, usual_environment

NOTEBOOKS = sorted((ROOT / 'experiments' / 'notebooks').glob('*.ipynb'))
_LEFT_OUT = 'batches sampled moments regularised residual averages tied transformer_n lstm'.split()
LITTLE = {  # replaces values of the cell that is tagged `parameters`
    'the_paper': {'LAST': 438, 'EPOCHS': 1},
    'ngrams_window_recurrence': {'LAST': 438, 'EPOCHS': 1, 'FAMILIES': ('nplm', 'lstm')},
    'from_2003_to_the_transformer': {
        'LAST': 436,
        'PASSES': 1,
        'LEAVE_OUT': _LEFT_OUT,
        'CONTEXTS': (1, 60),
        'PLACES': 20,
    },
    'your_own_text': {'EPOCHS': 1},
    'surprisal_for_your_experiment': {'EPOCHS': 1},
}
NEEDS = {'surprisal_for_your_experiment': 'statsmodels'}  # of pip install ".[studies]"
MIN_FIGURES = {'surprisal_for_your_experiment': 3}  # of others 5
MAX_BYTES = {'from_2003_to_the_transformer': 550_000}  # it has 16 figures; of others 400,000

each_notebook = pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in json.loads(path.read_text(encoding='utf-8'))['cells'] if cell['cell_type'] == 'code']


def skip_without_package(path):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason='needs what pip install ".[studies]" brings')


def drawn(cell):
    return sum('image/png' in output.get('data', {}) for output in cell['outputs'])


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the code of a notebook with other values of its parameters. Returns: its names."""
    figures = []

    def show():
        plt.gcf().canvas.draw()
        figures.extend(plt.get_fignums())
        plt.close('all')

    def run(path, parameters):
        namespace = {}
        with matplotlib.rc_context({'backend': 'Agg'}):
            for number, cell in enumerate(code_cells(path), start=1):
                exec(compile(''.join(cell['source']), f'{path.name}, code cell {number}', 'exec'), namespace)
                if 'parameters' in cell['metadata'].get('tags', ()):
                    assert parameters.keys() <= namespace.keys()
                    namespace |= parameters
                printed, drawn_now = bool(capsys.readouterr().out), len(figures)
                figures.clear()
                assert (printed, drawn_now) == (any('text' in o for o in cell['outputs']), drawn(cell)), (
                    f'{path.name}, code cell {number}: its committed outputs are those of another cell; run it again'
                )
        assert parameters.items() <= namespace.items()  # a cell has the tag `parameters`
        return namespace

    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    monkeypatch.setattr(plt, 'show', show)
    return run


@each_notebook
def test_the_code_runs(path, run):
    skip_without_package(path)
    run(path, LITTLE[path.stem])


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_a_text_of_the_readers_own_goes_through(run, tmp_path):
    paragraphs = (f'The jury said that it was over on day {i}. Nobody asked number {i % 7} why.' for i in range(150))
    (tmp_path / 'own.txt').write_text('\n\n'.join(paragraphs), encoding='utf-8')
    path = ROOT / 'experiments' / 'notebooks' / 'your_own_text.ipynb'
    names = run(path, {'TEXT': str(tmp_path / 'own.txt'), 'SENTENCE': 'The jury said it was over.', 'EPOCHS': 1})
    assert names['sentence'] == ['the', 'jury', 'said', 'it', 'was', 'over', '.']
    assert names['words'].counts[0] > 100 and 'macdonald' not in names['words'].ids


@each_notebook
def test_it_is_committed_as_it_ran(path):
    cells = code_cells(path)
    assert [cell['execution_count'] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell['outputs']]
    assert {output['output_type'] for output in outputs} <= {'stream', 'display_data'}
    assert {output.get('name', 'stdout') for output in outputs} == {'stdout'}
    assert sum(map(drawn, cells)) >= MIN_FIGURES.get(path.stem, 5)
    assert path.stat().st_size < MAX_BYTES.get(path.stem, 400_000)
    text = re.sub(r'"image/png": "[^"]*"', '', path.read_text(encoding='utf-8'))
    assert not re.search(r'/(tmp|home|root|work|Users|usr|var)\b', text)


@pytest.mark.nightly
@each_notebook
def test_it_runs_in_a_kernel(path, tmp_path):
    nbclient = pytest.importorskip('nbclient', reason='needs what pip install ".[notebooks]" brings')
    pytest.importorskip('ipykernel', reason='needs what pip install ".[notebooks]" brings')
    skip_without_package(path)
    import nbformat  # noqa: PLC0415 (comes with nbclient)

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    places = {'PYTHONPATH': str(ROOT), 'TMPDIR': str(tmp_path)}
    client = nbclient.NotebookClient(notebook, timeout=900, resources={'metadata': {'path': str(tmp_path)}})
    client.execute(env={**usual_environment(), **places})  # minutes less than with the tests' compiler flags
