"""Models as files of other tools, and ARPA files as runs: the same probabilities on the other side."""

import io
import json
import re

import numpy as np
import pytest

from configs import sentences
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli import loaded_models
from nplm_jax.models.ngram import arpa, sentence_marks
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.models.ngram.kneser_ney.DiscountWarning')

ARPA = r"""
\data\
ngram 1=6
ngram 2=6
ngram 3=2

\1-grams:
-1.2	<unk>	0
0	<s>	-0.30103
-0.69897	</s>
-0.6	i	-0.2
-0.6	like	-0.1
-0.528	zebras	-0.2

\2-grams:
-0.2	<s> i	-0.4
-0.3	i like	-0.6
-0.25	like zebras	-0.05
-0.4	zebras </s>
-1.5	<s> </s>
-0.9	like </s>

\3-grams:
-0.15	<s> i like
-0.25	like zebras </s>

\end\
"""


@pytest.fixture(scope='module')
def direct(tmp_path_factory):
    """A network with all six arrays of the paper."""
    config = sentences.get_config()
    config.model.direct, config.train.epochs, config.model.n = True, 20, 4
    experiment.run(config, folder := tmp_path_factory.mktemp('direct') / 'run')
    return folder


@pytest.fixture
def zebras(tmp_path, nplm_command):
    (tmp_path / 'zebras.arpa').write_text(ARPA)
    nplm_command('import', 'arpa', tmp_path / 'zebras.arpa', f'--workdir={tmp_path / "zebras"}')
    return tmp_path / 'zebras'


def random_contexts(vocabulary, length=3, number=50):
    return np.random.default_rng(0).integers(0, len(vocabulary), (number, length))


# --- export ----------------------------------------------------------------------------------------------


def test_npz_has_the_papers_arrays_from_which_numpy_computes_the_same(direct, tmp_path, nplm_command):
    nplm_command('export', direct, '--to=npz', f'--output={tmp_path / "a.npz"}')
    _, vocabulary, model = loading.load(direct)
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as file:
        a = dict(file)
    assert tuple(a['words']) == vocabulary.words and json.loads(str(a['config']))['model']['n'] == 4
    contexts_BxN = random_contexts(vocabulary)
    x_BxP = a['C_VxM'][contexts_BxN[:, ::-1]].reshape(len(contexts_BxN), -1)
    y_BxV = a['b_V'] + x_BxP @ a['W_VxP'].T + np.tanh(a['d_K'] + x_BxP @ a['H_KxP'].T) @ a['U_VxK'].T
    log_p_BxV = y_BxV - np.log(np.exp(y_BxV).sum(1, keepdims=True))
    assert np.abs(log_p_BxV - model.next_word(contexts_BxN)).max() < 1e-5


def test_npz_of_an_ngram_model_has_its_words_and_probabilities(folders, tmp_path, nplm_command):
    nplm_command('export', folders / 'counts', '--to=npz', f'--output={tmp_path / "a.npz"}')
    _, vocabulary, model = loading.load(folders / 'counts')
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as file:
        assert tuple(file['words']) == vocabulary.words
        np.testing.assert_array_equal(file['log_p.2'], model.log_p[1])


@pytest.mark.parametrize('name', ['network', 'counts'])
def test_safetensors_holds_the_same_arrays(folders, tmp_path, nplm_command, name):
    safetensors = pytest.importorskip('safetensors', reason='pip install safetensors')
    numpy_format = pytest.importorskip('safetensors.numpy')
    for kind in ('npz', 'safetensors'):
        nplm_command('export', folders / name, f'--to={kind}', f'--output={tmp_path / kind}')
    tensors = numpy_format.load_file(tmp_path / 'safetensors')
    with np.load(tmp_path / 'npz') as file:
        texts = {'words', 'config', 'kind'}
        assert set(tensors) == set(file.files) - texts
        for key, array in tensors.items():
            np.testing.assert_array_equal(array, file[key])
        with safetensors.safe_open(tmp_path / 'safetensors', 'numpy') as opened:
            assert json.loads(opened.metadata()['words']) == file['words'].tolist()


@pytest.mark.parametrize('changes', [{}, {'model.direct': True}, {'model.direct': True, 'model.h': 0}])
def test_onnxruntime_computes_the_same_log_probabilities(changes, tmp_path, nplm_command):
    pytest.importorskip('onnx', reason='pip install onnx')
    onnxruntime = pytest.importorskip('onnxruntime', reason='pip install onnxruntime')
    config = sentences.get_config()
    config.train.epochs, config.model.n = 20, 4
    config.update_from_flattened_dict(changes)
    experiment.run(config, tmp_path / 'run')
    nplm_command('export', tmp_path / 'run', '--to=onnx', f'--output={tmp_path / "a.onnx"}')
    session = onnxruntime.InferenceSession(str(tmp_path / 'a.onnx'), providers=['CPUExecutionProvider'])
    _, vocabulary, model = loading.load(tmp_path / 'run')
    for size in (1, 50):
        contexts_BxN = random_contexts(vocabulary, number=size).astype(np.int64)
        (log_p_BxV,) = session.run(['log_probabilities'], {'contexts': contexts_BxN})
        difference = np.abs(log_p_BxV - model.next_word(contexts_BxN)).max()
        assert log_p_BxV.shape == (size, len(vocabulary)) and difference < 1e-5
    assert json.loads(session.get_modelmeta().custom_metadata_map['words']) == list(vocabulary.words)


@pytest.mark.parametrize('name', ['features.txt', 'features.bin'])
def test_gensim_reads_word2vec(folders, tmp_path, nplm_command, name):
    gensim_models = pytest.importorskip('gensim.models', reason='pip install gensim')
    nplm_command('export', folders / 'network', '--to=word2vec', f'--output={tmp_path / name}')
    vectors = gensim_models.KeyedVectors.load_word2vec_format(tmp_path / name, binary=name.endswith('.bin'))
    _, vocabulary, model = loading.load(folders / 'network')
    for word in vocabulary.words:
        np.testing.assert_array_equal(vectors[word], np.asarray(model.params['C_VxM'])[vocabulary.ids[word]])


def test_an_add_delta_model_is_the_same_from_its_arpa_file(folders, tmp_path, nplm_command):
    nplm_command('export', folders / 'other', '--to=arpa', f'--output={tmp_path / "file.arpa"}')
    _, vocabulary, model = loading.load(folders / 'other')
    again, _ = arpa.read(tmp_path / 'file.arpa')
    contexts = random_contexts(vocabulary)
    np.testing.assert_allclose(again.next_word(contexts), model.next_word(contexts), atol=2e-6)


@pytest.mark.parametrize(
    'name, to, message',
    [
        (
            'network',
            'arpa',
            '--to=arpa: ARPA files hold back-off models (maximum_likelihood, add_delta, backoff, kneser_ney, ',
        ),
        ('counts', 'word2vec', 'a model of family modified_kneser_ney has no word features'),
        (
            'counts',
            'onnx',
            '--to=onnx: writes model.family=nplm with a softmax over all words (output.kind=full, sampled, nce',
        ),
    ],
)
def test_what_a_format_cannot_hold_is_one_line(folders, tmp_path, lines, name, to, message):
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['export', str(folders / name), f'--to={to}', f'--output={tmp_path / "file"}'])
    (line,) = lines()[1]
    assert stop.value.code == 2 and message in line and not (tmp_path / 'file').exists()


@pytest.mark.parametrize('package', ['safetensors', 'onnx'])
def test_a_missing_package_is_named(direct, tmp_path, lines, monkeypatch, package):
    for module in (package, f'{package}.numpy'):
        monkeypatch.setitem(__import__('sys').modules, module, None)
    lines()
    with pytest.raises(SystemExit):
        cli.main(['export', str(direct), f'--to={package}', f'--output={tmp_path / "file"}'])
    assert lines()[1] == [f'{package}: not installed: pip install "nplm-jax[export]", or pip install {package}']


def test_a_file_that_cannot_be_written_is_one_line(direct, lines):
    lines()
    with pytest.raises(SystemExit):
        cli.main(['export', str(direct), '--to=npz', '--output=/nowhere/a.npz'])
    assert lines()[1] == ["--output='/nowhere/a.npz': cannot be written (No such file or directory)"]


# --- import ----------------------------------------------------------------------------------------------


def test_an_imported_model_has_the_files_probabilities(zebras):
    settings, vocabulary, model = loading.load(zebras)
    assert settings.corpus.boundary_tokens and '<s>' not in vocabulary.ids
    for text, log10 in (
        ('<p> i', -0.2), ('<p> i like', -0.15), ('i like zebras', -0.6 - 0.25),
        ('like zebras <p>', -0.25), ('<p> zebras', -0.30103 - 0.528),
    ):  # fmt: skip
        *context, word = vocabulary.encode(text.split())
        assert model.next_word(np.array([context]))[0, word] / np.log(10) == pytest.approx(log10, abs=1e-6)


def test_import_export_import_gives_the_same_probabilities(zebras, tmp_path, nplm_command):
    nplm_command('export', zebras, '--to=arpa', f'--output={tmp_path / "again.arpa"}')
    nplm_command('import', 'arpa', tmp_path / 'again.arpa', f'--workdir={tmp_path / "again"}')
    _, first_words, first = loading.load(zebras)
    _, words, again = loading.load(tmp_path / 'again')
    assert words.words == first_words.words
    contexts = random_contexts(words)
    assert np.abs(first.next_word(contexts) - again.next_word(contexts)).max() < 2e-6


def test_kenlm_scores_lines_as_the_imported_run_does(zebras, tmp_path):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    reader = kenlm.Model(str(tmp_path / 'zebras.arpa'))
    models = loaded_models.load_models([str(zebras)])
    for text in ('i like zebras', 'like like', 'zebras i i like', 'i zzz zebras', ''):
        words = text.split()
        line = models.vocabulary.encode([*words, '<p>'])
        ids = np.append(models.line_start.before(line), line)
        log10 = [models.models[0].next_word(ids[None, :t])[0, ids[t]] / np.log(10) for t in range(1, len(ids))]
        assert sum(log10) == pytest.approx(reader.score(text, bos=True, eos=True), abs=1e-5)


def test_kenlm_scores_lines_by_default_as_score_with_end_does(folders, tmp_path, nplm_command, monkeypatch):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    nplm_command('export', folders / 'counts', '--to=arpa', f'--output={tmp_path / "a.arpa"}')
    reader, texts = kenlm.Model(str(tmp_path / 'a.arpa')), ('i like dog', 'i hate zebras', 'coffee')
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO('\n'.join(texts).encode())))
    rows, _ = nplm_command('score', folders / 'counts', '--end')
    for text, row in zip(texts, rows):
        assert float(row.split('Total: ')[1].split()[0]) == pytest.approx(reader.score(text), abs=1e-5)


def test_kenlm_reads_what_is_exported(folders, tmp_path, nplm_command):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    nplm_command('export', folders / 'counts', '--to=arpa', f'--output={tmp_path / "a.arpa"}')
    reader = kenlm.Model(str(tmp_path / 'a.arpa'))
    _, vocabulary, model = loading.load(folders / 'counts')
    differences = []
    names = ['</s>' if word == '<p>' else word for word in vocabulary.words]
    for context, name in zip(vocabulary.words[1:], names[1:]):
        state, after = kenlm.State(), kenlm.State()
        reader.NullContextWrite(state)
        reader.BaseScore(state, name, after)
        log_p_V = model.next_word(vocabulary.encode([context])[None])[0] / np.log(10)
        for i, word in enumerate(names[1:], start=1):
            differences.append(abs(reader.BaseScore(after, word, kenlm.State()) - log_p_V[i]))
    assert max(differences) < 2e-6


def test_an_imported_model_scores_generates_mixes_and_is_listed(zebras, folders, tmp_path, nplm_command):
    rows, _ = nplm_command('next', zebras, '--prompt=i like', '--count=2')
    assert 'zebras' in rows[2]
    assert nplm_command('generate', zebras, '--greedy', '--words=2', '--prompt=i')[0] == ['i like zebras']
    rows, _ = nplm_command('runs', tmp_path)
    assert 'imported' in rows[2] and '| - ' in rows[2]
    rows, _ = nplm_command('info', zebras)
    assert ': imported, ' in rows[0] and any('zebras.arpa' in row for row in rows)


def test_over_a_runs_vocabulary_no_probability_is_lost_and_it_mixes_with_that_run(
    zebras, folders, tmp_path, nplm_command
):
    run = folders / 'network'
    flags = f'--workdir={tmp_path / "mapped"}', f'--vocabulary={run}'
    (line,), _ = nplm_command('import', 'arpa', tmp_path / 'zebras.arpa', *flags)
    assert 'are not in the file and share the probability of <unk>' in line
    _, vocabulary, model = loading.load(tmp_path / 'mapped')
    p_BxV = np.exp(model.next_word(random_contexts(vocabulary)).astype(np.float64))
    assert vocabulary.words == loading.load(run)[1].words
    np.testing.assert_allclose(arpa_sums(tmp_path, vocabulary), p_BxV.sum(1), rtol=1e-5)
    rows, _ = nplm_command('mix', run, tmp_path / 'mapped', f'--output={tmp_path / "w.json"}')
    assert any(row.startswith('| mapped') for row in rows)
    nplm_command('generate', run, tmp_path / 'mapped', f'--weights={tmp_path / "w.json"}', '--words=2')


def arpa_sums(tmp_path, vocabulary):
    """The sums of the file's own probabilities after the same contexts, whose unknown words are <unk>."""
    path = tmp_path / 'zebras.arpa'
    model, words = sentence_marks.merge(path, *arpa.read(path))
    contexts = random_contexts(vocabulary)
    inner = np.array([words.encode(vocabulary.decode(context)) for context in contexts])
    return np.exp(model.next_word(inner).astype(np.float64)).sum(1)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['NOT'], 'not an ARPA file'),
        (['/nowhere'], '/nowhere: cannot be read'),
        (['GOOD', '--vocabulary=/nowhere'], "RUN='/nowhere': no run there"),
        (['GOOD', '--vocabulary=OTHER'], 'has no word in common with the file'),
    ],
)
def test_what_cannot_be_imported_is_one_line(arguments, message, folders, tmp_path, lines):
    (tmp_path / 'not').write_text('Lorem ipsum\n')
    (tmp_path / 'good').write_text(ARPA)
    places = {'NOT': tmp_path / 'not', 'GOOD': tmp_path / 'good', 'OTHER': folders / 'other'}
    for name, place in places.items():
        arguments = [a.replace(name, str(place)) for a in arguments]
    with pytest.raises(SystemExit) as stop:
        cli.main(['import', 'arpa', *arguments, f'--workdir={tmp_path / "run"}'])
    assert stop.value.code == 2 and message in lines()[1][-1] and not (tmp_path / 'run').exists()


def test_a_folder_in_use_is_left_alone(zebras, tmp_path, lines):
    before = sorted(zebras.iterdir())
    with pytest.raises(SystemExit):
        cli.main(['import', 'arpa', str(tmp_path / 'zebras.arpa'), f'--workdir={zebras}'])
    assert lines()[1][-1].endswith(': is not empty') and sorted(zebras.iterdir()) == before


def test_an_imported_model_whose_file_is_gone_says_so(zebras, lines, tmp_path, monkeypatch):
    (zebras / 'model.safetensors').unlink()
    monkeypatch.setattr(loading, 'prepare_recorded', lambda *_: None)
    with pytest.raises(SystemExit):
        cli.main(['next', str(zebras)])
    assert re.search('/model.safetensors: missing; run `nplm import` again on .*/zebras.arpa$', lines()[1][-1])
