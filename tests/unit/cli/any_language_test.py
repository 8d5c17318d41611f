"""Tests the core commands with pieces, characters or bytes as tokens, for texts in any language."""

import argparse
import json
import math

import numpy as np
import pytest
from helpers import default_settings, refuses, write_arpa
from language_runs import HOSTILE, KNESER_NEY, RUNS, make_runs
from texts import CHINESE, GERMAN, repeated

from configs import text as text_config
from nplm_jax import kenlm
from nplm_jax.apps.filter import selection
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.score import score_texts
from nplm_jax.config import settings as config_lib
from nplm_jax.data import vocabulary_files
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.tokenizers import cutting, token_text
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.ngram import kneser_ney
from nplm_jax.ngram.counts import count
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.command_models import LoadedModels

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), [*RUNS, 'network'])


@pytest.fixture
def fails(lines):
    """Returns a function that runs a failing command and returns its output."""

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        (line,) = lines()[1]
        assert stop.value.code == 2
        return line

    return call


def score(monkeypatch, nplm_command, run, data, *flags):
    monkeypatch.setattr('nplm_jax.cli.score.read_stdin', lambda: data)
    return nplm_command('score', run, *flags)


@pytest.mark.parametrize('name', RUNS)
@pytest.mark.parametrize('prompt', ['', 'Jeder hat', '人人', HOSTILE])
def test_generated_text_begins_with_the_prompt_and_never_breaks(runs, nplm_command, name, prompt):
    (output,), stderr = nplm_command(
        'generate', runs / name, f'--prompt={prompt}', '--json', '--samples=3', '--max_new_tokens=20'
    )
    texts = json.loads(output)['texts']
    assert stderr == [] and len(texts) == 3
    for text in texts:
        assert text['text'].startswith(prompt) and RARE not in text['words']
        assert len(text['words']) - len(json.loads(output)['prompt']) == 20


@pytest.mark.parametrize('words', [1, 7])
def test_words_are_counted_between_white_space(runs, nplm_command, words):
    (output,), _ = nplm_command('generate', runs / 'german', '--prompt=Jeder hat', f'--words={words}', '--json')
    for text in json.loads(output)['texts']:
        assert len(text['text'].removeprefix('Jeder hat').split()) == words
    whole, _ = nplm_command('generate', runs / 'german', '--samples=2', '--max_new_tokens=5')
    assert '---' in whole


def test_a_sample_does_not_depend_on_how_many_are_drawn(runs, nplm_command):
    few, many = (
        json.loads(nplm_command('generate', runs / 'german', '--words=4', f'--samples={n}', '--json')[0][0])['texts']
        for n in (2, 33)
    )
    assert few == many[:2]


def test_a_prompt_stands_after_a_line_end(runs, nplm_command):
    loaded = loading.load(runs / 'chinese')
    words, model = loaded.vocabulary, loaded.model
    log_p_V = model.next_word(words.encode(['Ċ'])[None])[0]
    (output,), _ = nplm_command('next', runs / 'chinese', '--count=3', '--json')
    for entry in json.loads(output)['next']:
        assert np.log(entry['p']['chinese']) == pytest.approx(log_p_V[words.find(entry['word'])], abs=1e-5)


def test_tokens_are_shown_with_their_blanks_and_bytes(runs, nplm_command):
    rows, _ = nplm_command('next', runs / 'german', '--count=1', '--prompt=Jeder hat das')
    assert rows[2].split()[1] == '␣Recht'
    assert (
        nplm_command('next', runs / 'german', '--prompt=a\r\nb')[0]
        == nplm_command('next', runs / 'german', '--prompt=a\nb')[0]
    )
    rows, _ = nplm_command('next', runs / 'bytes', '--count=3', '--prompt=人人')
    assert all(row.split()[1].startswith('<0x') or row.split()[1] == r'\n' for row in rows[2:])
    rows, _ = nplm_command('next', runs / 'characters', '--count=1', '--prompt=自')
    assert rows[2].split()[1] == '由'
    tokenizer = ByteTokenizer()
    assert [token_text.show(tokenizer, t) for t in (RARE, 'Ġ', 'Ċ', 'č', 'ĉ', 'a', 'ě', 'ä')] == [
        *(RARE, '␣', r'\n', r'\r', r'\t', 'a', '<U+001B>', '<0xE4>')
    ]


@pytest.mark.parametrize('name', RUNS)
def test_scores_are_of_the_same_text_without_a_note(runs, monkeypatch, nplm_command, name):
    text = f'{HOSTILE}\n人人\r\n\nJeder hat das'
    (output,), stderr = score(monkeypatch, nplm_command, runs / name, text, '--json')
    words = loading.load(runs / name).vocabulary
    lines = json.loads(output)['lines']
    assert stderr == [] and json.loads(output)['oovs'] == 0
    decoded = [words.tokenizer.decode(words.decode(line['ids'])) for line in lines]
    text = text.replace('\r\n', '\n')  # the training text has no Windows line ends
    assert decoded == text.split('\n')
    (output,), _ = score(monkeypatch, nplm_command, runs / name, text, '--json', '--stream')
    lines = json.loads(output)['lines']
    assert ''.join(words.tokenizer.decode(words.decode(line['ids'])) for line in lines) == f'{text}\n'
    stream = words.encode(words.tokenize(f'{text}\n'))
    assert [i for line in lines for i in line['ids']] == stream.tolist()


def test_a_line_end_has_the_characters_of_its_token(monkeypatch, nplm_command, tmp_path):
    (tmp_path / 'text').write_text(repeated(GERMAN).replace('\n', '\n\n'), encoding='utf-8')
    changes = KNESER_NEY | {'corpus.path': str(tmp_path / 'text'), 'corpus.tokens': 'pieces', 'corpus.pieces': 400}
    experiment.run(config_lib.override(text_config.get_config(), changes), tmp_path / 'run')
    text = 'Jeder hat das Recht\nAlle'
    (output,), _ = score(monkeypatch, nplm_command, tmp_path / 'run', text, '--json', '--end')
    scored = json.loads(output)
    assert [line['words'][-1] for line in scored['lines']] == [r'\n\n'] * 2
    bits = -sum(line['total'] for line in scored['lines']) / math.log10(2)
    assert scored['bits_per_character'] == pytest.approx(bits / len('Jeder hat das Recht\n\nAlle\n\n'))


def test_runs_of_one_tokenizer_are_mixed(runs, nplm_command, fails):
    rows, _ = nplm_command('mix', runs / 'german', runs / 'network')
    assert len(rows) == 7
    assert str(runs / 'bytes') in fails('mix', runs / 'bytes', runs / 'german')


def test_runs_of_another_tokenizer_are_refused(runs, fails):
    changes = KNESER_NEY | {'corpus.tokens': 'bytes', 'corpus.path': str(runs / 'bytes.txt')}
    for name, normalization in (('nfc', 'nfc'), ('none', 'none')):
        config = config_lib.override(text_config.get_config(), changes | {'corpus.normalization': normalization})
        experiment.run(config, runs / name)
    words = loading.load(runs / 'nfc').vocabulary
    assert words.words == vocabulary_files.load(runs / 'none' / 'vocabulary.txt').words
    assert 'normalization' in fails('next', runs / 'none', runs / 'nfc')


def test_nothing_is_unknown(runs, fails):
    assert 'corpus.tokens=bytes' in fails('generate', runs / 'bytes', '--open')


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--tokens=words'], "tokens='words':"),
        (['--prompt=a\udcff'], "--prompt='a\\udcff':"),
        (['--max_new_tokens=0'], '--max_new_tokens=0:'),
        (['--words=0'], '--words=0:'),
        (['--beam=2', '--words=3'], '--words=3:'),
    ],
)
def test_a_mistake_is_one_line(runs, fails, arguments, message):
    assert fails('generate', runs / 'german', *arguments).startswith(message)


def test_an_arpa_file_of_pieces_comes_back_the_same(runs, nplm_command, monkeypatch, tmp_path):
    write_arpa(runs / 'german', tmp_path / 'german.arpa')
    nplm_command('import', tmp_path / 'german.arpa', f'--workdir={tmp_path / "run"}', '--vocabulary', runs / 'german')
    loaded = loading.load(runs / 'german')
    words, exported = loaded.vocabulary, loaded.model
    loaded = loading.load(tmp_path / 'run')
    again, imported = loaded.vocabulary, loaded.model
    ids_T = words.encode(words.tokenize(f'{GERMAN}{HOSTILE}'))
    assert again.tokenizer == words.tokenizer and again.words == words.words
    np.testing.assert_allclose(imported.score(ids_T), exported.score(ids_T), atol=1e-5)


def test_a_text_without_blanks_names_the_tokens_for_it(tmp_path, capsys):
    (tmp_path / 'text').write_text(repeated(CHINESE), encoding='utf-8')
    config = text_config.get_config()
    config.corpus.path = str(tmp_path / 'text')
    experiment.run(config_lib.override(config, KNESER_NEY), tmp_path / 'run')
    warnings = [line for line in capsys.readouterr().err.splitlines() if 'corpus.tokens=' in line]
    assert len(warnings) == 1


def test_a_corpus_without_newlines_has_no_end_of_a_line():
    (read,) = cutting.tokenize(tokenizer := ByteTokenizer(boundary_tokens=True), ['a b'])
    words = Vocabulary(tokenizer.tokens, tuple(map(read.count, tokenizer.tokens)), tokenizer)
    model = kneser_ney.fit_modified(count(words.encode(read), Span(0, len(read)), 2, len(words)))
    loaded = LoadedModels(['m'], ['m'], [default_settings()], words, [model], model, LineStart.of(words))
    with refuses('--end'):
        score_texts(loaded, ['a'], argparse.Namespace(stream=False, end=True, open=False, tokens=''))
    with refuses('--end'):
        selection.Scorer(loaded, end=True)
    of_bytes = kenlm.Model(LoadedModel(default_settings(), words, model))
    assert of_bytes.score('a', eos=False) < 0
    with refuses('eos'):
        of_bytes.score('a')
