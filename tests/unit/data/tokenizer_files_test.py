"""Tests that a run stores its tokenizer in a file, and that a new kind needs only a class and a line in KINDS."""

import dataclasses
import io
import json
import sys

import pytest
from helpers import corpus_settings, refuses, register

from configs import text as text_config
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, encoding, vocabulary, vocabulary_files
from nplm_jax.data.stream import RARE
from nplm_jax.data.tokenizers import cutting, tokenizer_files
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, check_tokens
from nplm_jax.data.tokenizers.words import WordTokenizer, reading
from nplm_jax.runs import experiment, loading

TEXT = 'The dog barks, the cat sleeps. A dog sleeps.\n\nThe cats bark and the dogs sleep, said Ann.\n' * 8


@dataclasses.dataclass(frozen=True)
class Letters(Tokenizer):
    """Characters as tokens, including blanks."""

    lowercase: bool = False

    def split(self, text):
        return list(' '.join(text.split()))

    def cut(self, strings, known=None):
        return [[string.lower() if self.lowercase else string] for string in strings]

    def decode(self, tokens, clean_up=False):
        return ''.join(tokens)

    def utf8(self, token):
        return token.encode()


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Returns a function that trains a small run on TEXT and returns its folder."""
    register(monkeypatch, 'corpus.tokens', 'letters', f'{__name__}:Letters')

    def train_run(tokens):
        (tmp_path / 'text.txt').write_text(TEXT)
        changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.tokens': tokens, 'corpus.min_count': 1}
        config = config_lib.override(text_config.get_config(), changes)
        config.model.n, config.model.m, config.model.h = 4, 4, 6
        config.train.epochs, config.train.batch_size = 1, 16
        experiment.run(config, tmp_path / tokens)
        return tmp_path / tokens

    return train_run


@pytest.fixture
def call(monkeypatch, nplm_command):
    """Returns a function that runs a command of nplm with a text as its input."""

    def call(text, *arguments):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        return nplm_command(*arguments)[0]

    return call


def test_a_new_kind_of_token_trains_scores_and_generates(train, call):
    folder = train('letters')
    loaded = loading.load(folder)
    settings, words = loaded.settings, loaded.vocabulary
    assert words.tokenizer == Letters('letters', boundary_tokens=True, lowercase=True)
    data = loading.prepare_recorded(settings, folder)
    assert ''.join(words.decode(data.tokens_T[2:16])) == 'the dog barks,'
    (output,) = call('The cat\n', 'score', folder, '--json')
    assert json.loads(output)['lines'][0]['words'] == list('the cat')
    output = call('', 'generate', folder, '--prompt=The c', '--words=5', '--samples=2')
    assert all(line.startswith('the c') and len(line.replace('<p>', '').replace('<text>', '')) <= 10 for line in output)
    with refuses('tokens'):
        reading(words.tokenizer, 'words')


@pytest.mark.skipif('surprisal' not in all_commands(), reason='the app is deleted')
def test_surprisal_has_the_new_kind_of_token(train, call):
    header, first, *_ = (line.split('\t') for line in call('The cat', 'surprisal', train('letters')))
    assert dict(zip(header, first))['tokens'] == 't h e'


def test_commands_follow_the_saved_rules_and_another_text_is_refused(train, call):
    folder = train('words')
    loaded = loading.load(folder)
    settings, words = loaded.settings, loaded.vocabulary
    assert words.tokenize('The dogs, said') == ['the', 'dogs', ',', 'said']
    loading.prepare_recorded(settings, folder)
    config = json.loads((folder / 'config.json').read_text())
    del config['sha256']['tokenizer_config.json']
    (folder / 'config.json').write_text(json.dumps(config))
    rules = json.loads((folder / 'tokenizer_config.json').read_text())
    (folder / 'tokenizer_config.json').write_text(
        json.dumps({**rules, 'kind': 'whitespace', 'split_punctuation': False})
    )
    assert loading.load(folder).vocabulary.tokenize('The dogs, said') == ['the', 'dogs,', 'said']
    (output,) = call('The dogs, said\n', 'score', folder, '--json')
    assert json.loads(output)['lines'][0]['words'] == ['the', 'dogs,', 'said']
    with refuses('RUN'):
        loading.prepare_recorded(settings, folder)


@pytest.mark.parametrize(
    'changes',
    [
        {'format': 2},
        {'kind': 'runes'},
        {'kind': []},
        {'lowercase': 'no'},
        {'merges': None},
        {'merges': []},
        {'names': ['ann', {}]},
    ],
)
def test_a_file_of_another_form_is_one_line(tmp_path, changes):
    values = tokenizer_files.to_dict(WordTokenizer('words'))
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps({**values, **changes}))
    with refuses('tokenizer_config.json'):
        tokenizer_files.load({}, tmp_path)


def test_what_is_saved_is_loaded(tmp_path):
    tokenizer = WordTokenizer('words', lowercase=True, proper_nouns=True, names=('ann', 'bush'))
    tokenizer_files.save(tokenizer, {}, tmp_path)
    assert tokenizer_files.load({}, tmp_path) == tokenizer


def test_proper_nouns_are_learned_from_the_text_and_kept(tmp_path):
    (tmp_path / 'text.txt').write_text(TEXT)
    settings = corpus_settings('text', tmp_path / 'text.txt', proper_nouns=True)
    words = encoding.build_vocabulary(corpora.load(settings), settings)
    assert words.tokenizer.names == ('ann',)
    vocabulary_files.save(words, tmp_path / 'vocabulary.txt')
    assert vocabulary_files.load(tmp_path / 'vocabulary.txt').tokenize('Ann said') == ['<proper>', 'said']


def test_a_tokenized_corpus_is_split_at_white_space_unless_another_kind_is_asked_for(monkeypatch):
    register(monkeypatch, 'corpus.tokens', 'letters', f'{__name__}:Letters')
    assert corpora.make_tokenizer(corpus_settings('brown')).kind == 'whitespace'
    assert corpora.make_tokenizer(corpus_settings('text')).kind == 'words'
    assert corpora.make_tokenizer(corpus_settings('brown', tokens='letters')).kind == 'letters'
    with refuses('corpus.tokens'):
        corpora.check_settings(corpus_settings('text', tokens='runes'))


@pytest.mark.parametrize('kind', ['words', 'whitespace'])
@pytest.mark.parametrize('lowercase', [True, False])
def test_decoding_an_encoded_text_gives_its_tokens_with_blanks_between(kind, lowercase):
    tokenizer = WordTokenizer(kind, lowercase=lowercase)
    text = TEXT.lower() if lowercase else TEXT
    once = tokenizer.decode(cutting.tokenize(tokenizer, [TEXT])[0])
    assert tokenizer.decode(cutting.tokenize(tokenizer, [once])[0]) == once
    assert once.replace(' ', '') == ''.join(text.split())
    assert kind == 'words' or once == ' '.join(text.split())
    cleaned = tokenizer.decode(cutting.tokenize(tokenizer, [TEXT])[0], clean_up=True)
    assert kind == 'whitespace' or cleaned.split() == text.split()


def test_a_text_is_cut_and_fitted_to_the_words_that_are_known():
    tokenizer = WordTokenizer('words', lowercase=True, split_possessive=True)
    (tokens,) = cutting.tokenize(tokenizer, [" The  dog's e\u0301tude, 'no'"])
    assert tokens == ['the', 'dog', "'s", 'étude', ',', "'", 'no', "'"]
    (fitted,) = cutting.tokenize(WordTokenizer(), ['"No" — ice'], {'``', 'No', "''", '--'})
    assert fitted == ['``', 'No', "''", '--', 'ice']


def test_a_dataset_knows_tokens_words_and_characters(tmp_path):
    (tmp_path / 'text.txt').write_text('ab cd\n\nab efg\n\nab h ij\n')
    settings = corpus_settings('text', tmp_path / 'text.txt', paragraphs='blank_lines', train=6.0, valid=2.0)
    corpus = corpora.load(settings)
    assert corpus.words == '<text> <p> ab cd <p> ab efg <p> ab h ij'.split()
    rare = vocabulary.build(corpus.words, min_count=2)
    sizes = encoding.build_dataset(corpus, rare).sizes
    assert sizes == {'train': (6, 3, 12, 12), 'valid': (2, 1, 5, 5), 'test': (3, 3, 8, 8)}
    assert RARE in rare.words


@dataclasses.dataclass(frozen=True)
class Lines(Letters):
    """Characters as tokens, including line ends."""

    def split(self, text):
        return list(text)


def test_a_token_with_a_line_end_is_refused_before_training(train, tmp_path, monkeypatch):
    register(monkeypatch, 'corpus.tokens', 'lines', f'{__name__}:Lines')
    with refuses('corpus.tokens'):
        train('lines')
    assert not (tmp_path / 'lines').exists()


@pytest.mark.parametrize('token', ['', 'a\tb', 'a\n', 'a\0', '\udce4'])
def test_a_token_that_a_vocabulary_file_cannot_contain_is_refused(token):
    with refuses('corpus.tokens'):
        check_tokens('mine', ['a', token])
