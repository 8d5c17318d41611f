"""Tests that imported ARPA files give the probabilities in the files."""

import gzip
import importlib.util
import io
import json
import re

import numpy as np
import pytest
from helpers import random_contexts, write_arpa

from configs import sentences
from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.ngram import arpa, sentence_marks
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

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


@pytest.fixture
def zebras(tmp_path, nplm_command):
    (tmp_path / 'zebras.arpa').write_text(ARPA)
    nplm_command('import', tmp_path / 'zebras.arpa', f'--workdir={tmp_path / "zebras"}')
    return tmp_path / 'zebras'


def test_a_compressed_file_is_imported(nplm_command, tmp_path):
    (tmp_path / 'my lm.arpa.gz').write_bytes(gzip.compress(ARPA.encode()))
    nplm_command('import', tmp_path / 'my lm.arpa.gz', f'--workdir={tmp_path / "lm"}')
    assert loading.load(tmp_path / 'lm').vocabulary.words[1:3] == ('<p>', 'i')


def test_an_imported_model_has_the_files_probabilities(zebras):
    loaded = loading.load(zebras)
    settings, vocabulary, model = loaded.settings, loaded.vocabulary, loaded.model
    assert settings.corpus.tokenizer.boundary_tokens and '<s>' not in vocabulary.ids
    for text, log10 in (
        ('<p> i', -0.2), ('<p> i like', -0.15), ('i like zebras', -0.6 - 0.25),
        ('like zebras <p>', -0.25), ('<p> zebras', -0.30103 - 0.528),
    ):  # fmt: skip
        *context, word = vocabulary.encode(text.split())
        assert model.next_word(np.array([context]))[0, word] / np.log(10) == pytest.approx(log10, abs=1e-6)


@pytest.mark.parametrize('word', ['\u09b9\u09df', '10\xa0000', 'cafe\u0301', 'a\u2028b\u3000c'])
@pytest.mark.parametrize('tokens', ['', 'whitespace'])
def test_a_text_is_cut_at_blanks_of_ascii_and_keeps_its_form(word, tokens, tmp_path, nplm_command, monkeypatch):
    (tmp_path / 'lm.arpa').write_text(ARPA.replace('zebras', word), encoding='utf-8')
    nplm_command('import', tmp_path / 'lm.arpa', f'--workdir={tmp_path / "lm"}')
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(f'i\vlike\f{word}\n'.encode()), encoding='utf-8'))
    flags = [f'--tokens={tokens}'] if tokens else []
    (output,), _ = nplm_command('score', tmp_path / 'lm', '--end', '--json', *flags)
    (line,) = json.loads(output)['lines']
    assert line['words'] == ['i', 'like', word, '<p>']
    expected = kenlm.Model(tmp_path / 'lm.arpa').score(f'i\vlike\f{word}')
    assert line['total'] == pytest.approx(expected, abs=1e-5) and expected == pytest.approx(-0.2 - 0.15 - 0.85 - 0.25)


def test_import_export_import_gives_the_same_probabilities(zebras, tmp_path, nplm_command):
    write_arpa(zebras, tmp_path / 'again.arpa')
    nplm_command('import', tmp_path / 'again.arpa', f'--workdir={tmp_path / "again"}')
    loaded = loading.load(zebras)
    first_words, first = loaded.vocabulary, loaded.model
    loaded = loading.load(tmp_path / 'again')
    words, again = loaded.vocabulary, loaded.model
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
    write_arpa(folders / 'counts', tmp_path / 'a.arpa')
    reader, texts = kenlm.Model(str(tmp_path / 'a.arpa')), ('i like dog', 'i hate zebras', 'coffee')
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO('\n'.join(texts).encode())))
    rows, _ = nplm_command('score', folders / 'counts', '--end')
    for text, row in zip(texts, rows):
        assert float(row.split('Total: ')[1].split()[0]) == pytest.approx(reader.score(text), abs=1e-5)


def test_kenlm_reads_what_is_exported(folders, tmp_path, nplm_command):
    kenlm = pytest.importorskip('kenlm', reason='pip install kenlm')
    write_arpa(folders / 'counts', tmp_path / 'a.arpa')
    reader = kenlm.Model(str(tmp_path / 'a.arpa'))
    loaded = loading.load(folders / 'counts')
    vocabulary, model = loaded.vocabulary, loaded.model
    differences = []
    names = ['</s>' if word == '<p>' else word for word in vocabulary.words]
    for context, name in zip(vocabulary.words[1:], names[1:]):
        if context == '<p>':  # a bigram file has the n-grams after it under <s>
            continue
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
    (output,), _ = nplm_command('info', zebras, '--json')
    assert json.loads(output)['vocabulary']['most_frequent'] is None  # the file has no counts


def test_over_a_runs_vocabulary_no_probability_is_lost_and_it_mixes_with_that_run(
    zebras, folders, tmp_path, nplm_command
):
    run = folders / 'network'
    flags = f'--workdir={tmp_path / "mapped"}', f'--vocabulary={run}'
    (line,), _ = nplm_command('import', tmp_path / 'zebras.arpa', *flags)
    assert '<unk>' in line
    loaded = loading.load(tmp_path / 'mapped')
    vocabulary, model = loaded.vocabulary, loaded.model
    p_BxV = np.exp(model.next_word(random_contexts(vocabulary)).astype(np.float64))
    assert vocabulary.words == loading.load(run).vocabulary.words
    np.testing.assert_allclose(arpa_sums(tmp_path, vocabulary), p_BxV.sum(1), rtol=1e-5)
    rows, _ = nplm_command('mix', run, tmp_path / 'mapped', f'--output={tmp_path / "w.json"}')
    assert any(row.startswith('| mapped') for row in rows)
    nplm_command('generate', run, tmp_path / 'mapped', f'--weights={tmp_path / "w.json"}', '--words=2')


def arpa_sums(tmp_path, vocabulary):
    """Returns the sums of the file's probabilities after the same contexts, with <unk> for unknown words."""
    path = tmp_path / 'zebras.arpa'
    model, words = sentence_marks.merge(path, *arpa.read(path))
    contexts = random_contexts(vocabulary)
    inner = np.array([words.encode(vocabulary.decode(context)) for context in contexts])
    return np.exp(model.next_word(inner).astype(np.float64)).sum(1)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['NOT'], '/not:1:'),
        (['/nowhere'], '/nowhere:'),
        (['GOOD', '--vocabulary=/nowhere'], "RUN='/nowhere':"),
        (['GOOD', '--vocabulary=OTHER'], '--vocabulary='),
    ],
)
def test_what_cannot_be_imported_is_one_line(arguments, message, folders, tmp_path, lines):
    (tmp_path / 'not').write_text('Lorem ipsum\n')
    (tmp_path / 'good').write_text(ARPA)
    places = {'NOT': tmp_path / 'not', 'GOOD': tmp_path / 'good', 'OTHER': folders / 'other'}
    for name, place in places.items():
        arguments = [a.replace(name, str(place)) for a in arguments]
    with pytest.raises(SystemExit) as stop:
        cli.main(['import', *arguments, f'--workdir={tmp_path / "run"}'])
    assert stop.value.code == 2 and message in lines()[1][-1] and not (tmp_path / 'run').exists()


def test_a_folder_in_use_is_left_alone(zebras, tmp_path, lines):
    before = sorted(zebras.iterdir())
    with pytest.raises(SystemExit):
        cli.main(['import', str(tmp_path / 'zebras.arpa'), f'--workdir={zebras}'])
    assert str(zebras) in lines()[1][-1] and sorted(zebras.iterdir()) == before


def test_a_file_is_no_folder_of_a_run(tmp_path, lines):
    (tmp_path / 'lm.arpa').write_text(ARPA)
    with pytest.raises(SystemExit) as stop:
        cli.main(['import', str(tmp_path / 'lm.arpa'), f'--workdir={tmp_path / "lm.arpa"}'])
    message = f"--workdir='{tmp_path / 'lm.arpa'}': must be a folder"
    assert stop.value.code == 2 and lines()[1] == [message] and (tmp_path / 'lm.arpa').read_text() == ARPA


def test_an_imported_model_whose_file_is_gone_says_so(zebras, lines, tmp_path, monkeypatch):
    (zebras / 'model.safetensors').unlink()
    monkeypatch.setattr(loading, 'prepare_recorded', lambda *_: None)
    with pytest.raises(SystemExit):
        cli.main(['next', str(zebras)])
    assert re.search('/model.safetensors: .*/zebras.arpa$', lines()[1][-1])


# --- ARPA files in place of runs --------------------------------------------------------------------------

LINES = 'i like zebras', 'like like', 'zebras i i like', 'i zzz zebras', ''
FILES = {
    'as it is': ARPA,
    'a word of probability -99': ARPA.replace('-0.528\tzebras', '-99\tzebras'),
    'no unknown word': ARPA.replace('ngram 1=6', 'ngram 1=5').replace('-1.2\t<unk>\t0\n', ''),
}


@pytest.fixture
def totals(nplm_command, monkeypatch):
    """Returns a function that returns the total of each line of LINES from `nplm score --end`."""

    def score(*arguments):
        monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO('\n'.join([*LINES, '']).encode())))
        return [
            line['total'] for line in json.loads('\n'.join(nplm_command('score', *arguments, '--json')[0]))['lines']
        ]

    return score


@pytest.mark.parametrize('text', FILES.values(), ids=FILES)
def test_score_takes_an_arpa_file_with_the_numbers_of_kenlm(tmp_path, totals, text):
    (tmp_path / 'lm.arpa').write_text(text)
    (tmp_path / 'packed').write_bytes(gzip.compress(text.encode()))
    expected = [kenlm.Model(tmp_path / 'lm.arpa').score(line) for line in LINES]
    for name in ('lm.arpa', 'packed'):
        assert totals(tmp_path / name, '--end') == pytest.approx(expected, rel=1e-6, abs=1e-5)
    if reader := importlib.util.find_spec('kenlm') and importlib.import_module('kenlm').Model:
        assert [reader(str(tmp_path / 'lm.arpa')).score(line) for line in LINES] == pytest.approx(
            expected, rel=1e-6, abs=1e-5
        )


@pytest.mark.parametrize('n', [2, 3])
def test_score_takes_the_file_of_a_model_of_the_stream(tmp_path, totals, n):
    config = config_lib.override(sentences.get_config(), {'model.family': 'modified_kneser_ney', 'model.n': n})
    experiment.run(config, tmp_path / 'run')
    write_arpa(tmp_path / 'run', tmp_path / 'lm.arpa')
    assert totals(tmp_path / 'lm.arpa', '--end') == pytest.approx(totals(tmp_path / 'run', '--end'), abs=1e-5)


def test_several_arpa_files_are_mixed(tmp_path, totals):
    for name, text in (('a.arpa', ARPA), ('b.arpa', ARPA.replace('-0.15\t<s> i like', '-0.75\t<s> i like'))):
        (tmp_path / name).write_text(text)
    files = [tmp_path / 'a.arpa', tmp_path / 'b.arpa']
    expected = [kenlm.Model(files, weights=[0.25, 0.75]).score(line) for line in LINES]
    assert totals(*files, '--weights=0.25,0.75', '--end') == pytest.approx(expected, abs=1e-5)


def test_the_next_words_of_an_arpa_file(tmp_path, nplm_command):
    (tmp_path / 'lm.arpa').write_text(ARPA)
    rows, _ = nplm_command('next', tmp_path / 'lm.arpa', '--prompt=i like', '--count=1')
    assert 'zebras' in '\n'.join(rows)


def test_what_needs_a_run_refuses_an_arpa_file(tmp_path, totals, capsys):
    (tmp_path / 'lm.arpa').write_text(ARPA)
    with pytest.raises(SystemExit):
        totals(tmp_path / 'lm.arpa', '--open')
    *_, answer = capsys.readouterr().err.splitlines()
    assert answer.startswith('--open: ') and 'nplm import' in answer


@pytest.mark.parametrize('data', [b'i like zebras\n', b'', b'mmap lm http://kheafield.com/code'])
def test_a_file_that_is_no_arpa_file_is_refused(tmp_path, totals, capsys, data):
    (tmp_path / 'lm.arpa').write_bytes(data)
    with pytest.raises(SystemExit):
        totals(tmp_path / 'lm.arpa')
    (answer,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / 'lm.arpa') in answer
