"""Tests that every text can be encoded as bytes, characters or pieces and decoded without loss."""

import hashlib
import json
import pathlib
import subprocess
import sys

import pytest
import tokenizers
from helpers import corpus_settings, refuses
from hypothesis import example, given, settings
from hypothesis import strategies as st
from texts import SCRIPTS

import nplm_jax
from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import KINDS, component_class
from nplm_jax.data import corpora, encoding, vocabulary_files
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.byte_level import ALPHABET, ByteTokenizer, CharacterTokenizer, to_alphabet, to_bytes
from nplm_jax.data.tokenizers.pieces import PieceTokenizer
from nplm_jax.data.tokenizers.token_text import keeps_letters
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.runs import experiment, run_inputs

TEXT = ''.join(SCRIPTS.values()) * 3


def learned(tokenizer):
    return tokenizer.learn([lambda: [TextChunk(TEXT, True)]], map)


TOKENIZERS = {
    'bytes': ByteTokenizer(),
    'characters': learned(CharacterTokenizer(boundary_tokens=True)),
    'bpe': learned(PieceTokenizer(pieces=400, boundary_tokens=True)),
    'unigram': learned(PieceTokenizer(pieces=340, piece_model='unigram')),
}
HF = {
    name: tokenizer.to_hf({t: i for i, t in enumerate(reversed(tokenizer.tokens))})
    for name, tokenizer in TOKENIZERS.items()
}


def test_the_alphabet_is_that_of_gpt_2():
    assert sorted(ALPHABET) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    text = ''.join(map(chr, range(256)))
    ((ours, _),) = tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text)
    assert ours == to_alphabet(text) and to_bytes(ours) == text.encode()


def digest_of_unigram():
    return hashlib.sha256(repr(learned(PieceTokenizer(pieces=360, piece_model='unigram')).rules).encode()).hexdigest()


def test_the_unigram_model_of_a_text_is_the_same_in_every_process():
    code = 'from tokenizer_byte_level_test import digest_of_unigram; print(digest_of_unigram())'
    path = f'import sys; sys.path[:0] = {sys.path!r}; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); '
    other = subprocess.run([sys.executable, '-c', path + code], capture_output=True, text=True, check=True).stdout
    assert {digest_of_unigram(), digest_of_unigram(), other.strip()} == {other.strip()}


def test_a_run_of_the_unigram_model_is_read_again_as_the_ids_that_it_was_trained_on(tmp_path):
    (tmp_path / 'text.txt').write_text(TEXT)
    changes = {'corpus.tokens': 'pieces', 'corpus.piece_model': 'unigram', 'corpus.pieces': 300, 'model.n': 2}
    changes |= {'corpus.path': str(tmp_path / 'text.txt'), 'model.family': 'add_delta'}
    experiment.run(config_lib.override(text_config.get_config(), changes), tmp_path / 'run')
    loaded = nplm_jax.load(tmp_path / 'run')
    found, words = loaded.settings, loaded.vocabulary
    for run in (tmp_path / 'run', found):
        data = nplm_jax.load_dataset(run)
        assert data.vocabulary == words and not run_inputs.difference(
            tmp_path / 'run', found, run_inputs.text_digest(data)
        )


@pytest.mark.parametrize('name', TOKENIZERS)
def test_the_saved_tokenizer_is_loaded_and_reads_the_same_ids_in_hugging_faces_library(tmp_path, name):
    tokenizer = TOKENIZERS[name]
    words = Vocabulary(tokenizer.tokens, (0,) * len(tokenizer.tokens), tokenizer)
    vocabulary_files.save(words, tmp_path / 'vocabulary.txt')
    assert vocabulary_files.load(tmp_path / 'vocabulary.txt').tokenizer == tokenizer
    hf = tokenizers.Tokenizer.from_file(str(tmp_path / 'tokenizer.json'))
    ids = words.encode(words.tokenize(TEXT)).tolist()
    assert hf.encode(TEXT, add_special_tokens=False).ids == ids and hf.decode(ids) == TEXT


@pytest.mark.parametrize('name', TOKENIZERS)
@pytest.mark.parametrize('script', SCRIPTS)
def test_a_text_of_any_script_round_trips(name, script):
    tokenizer, text = TOKENIZERS[name], SCRIPTS[script]
    (tokens,) = cutting.tokenize(tokenizer, [text])
    assert tokenizer.decode(tokens) == text and set(tokens) <= set(tokenizer.tokens)
    whole = cutting.drop_last(tokenizer, text)
    assert text.startswith(whole) and 0 < len(text[len(whole) :].encode()) < len(to_bytes(tokens[-1])) + 4


@pytest.mark.parametrize('number', [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_random_texts_round_trip(number):
    @settings(max_examples=number, database=None)
    @given(st.text(st.characters(exclude_categories=['Cs', 'Cn']), max_size=40))  # Cn depends on Unicode's version
    @example('\x00\x1c\x85\r\n\u2028 \t  a')
    @example('👩\u200d👩\u200d👧 e\u0301 \u202eabc\ufeff')
    @example("it's I'LL 'súbito '99 \U0010ffff")
    def check(text):
        for name, tokenizer in TOKENIZERS.items():
            tokens = cutting.tokenize(tokenizer, [text])[0]
            assert tokenizer.decode(tokens) == text, name
            ids = HF[name].encode(text, add_special_tokens=False).ids
            assert [HF[name].id_to_token(i) for i in ids] == tokens, name

    check()


@pytest.mark.parametrize('name', TOKENIZERS)
@pytest.mark.parametrize('text', ['<rare>', 'a <text> b', 'x<rare>y<pad>', '<p>\n<text>'])
def test_a_text_that_spells_a_special_token_is_cut_as_any_text_here_and_in_hugging_faces_library(name, text):
    tokens = cutting.tokenize(TOKENIZERS[name], [text])[0]
    hf = tokenizers.Tokenizer.from_str(HF[name].to_str())
    assert hf.encode(text).tokens == tokens and not {'<rare>', '<text>', '<pad>'} & set(tokens)
    assert TOKENIZERS[name].decode(tokens) == text == hf.decode(hf.encode(text).ids)


@pytest.mark.parametrize('name', TOKENIZERS)
def test_a_piece_of_a_corpus_has_the_tokens_of_its_text(name):
    tokenizer = TOKENIZERS[name]
    tokens = cutting.read_chunk(tokenizer, TextChunk(TEXT, True))[0].words()
    assert tokenizer.decode(tokens) == TEXT
    marks = ['<text>'] if tokenizer.boundary_tokens else []
    assert tokens == marks + cutting.tokenize(tokenizer, [TEXT])[0]
    assert cutting.read_chunk(tokenizer, TextChunk(TEXT, False))[0].words() == cutting.tokenize(tokenizer, [TEXT])[0]


@pytest.mark.parametrize('name', TOKENIZERS)
def test_the_sizes_of_the_tokens_are_those_of_the_text(name):
    tokenizer, text = TOKENIZERS[name], 'a  b\nTür ,c\n\n 人人 '
    types, type_ids_T = cutting.read_chunk(tokenizer, TextChunk(text, False))[0]
    (size,) = encoding.measure(tokenizer, types, [type_ids_T])
    assert size[1:] == (5, len(text), len(text.encode()))


def test_a_form_of_unicode_is_applied_before_the_text_is_cut():
    text = 'e\u0301 ﬁ'
    for form, expected in (('none', text), ('nfc', 'é ﬁ'), ('nfkc', 'é fi')):
        tokenizer = ByteTokenizer(normalization=form)
        assert tokenizer.decode(cutting.tokenize(tokenizer, [text])[0]) == expected
        assert keeps_letters(tokenizer, [(text, cutting.tokenize(tokenizer, [text])[0])]) == (form != 'nfkc')
        hf = tokenizer.to_hf({t: i for i, t in enumerate(tokenizer.tokens)})
        assert hf.encode(text, add_special_tokens=False).tokens == cutting.tokenize(tokenizer, [text])[0]


def test_an_unpaired_surrogate_is_one_line():
    text = json.loads(r'"a \ud83d b"')
    with refuses('text'):
        cutting.tokenize(ByteTokenizer(), [text])


def _damage(folder, change):
    path = folder / 'tokenizer.json'
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize('name', ['bpe', 'unigram', 'characters'])
@pytest.mark.parametrize(
    'change',
    [
        lambda values: values.pop('model'),
        lambda values: values['model'].pop('vocab'),
        lambda values: values.update(model=[1]),
        lambda values: values['model'].update(vocab=[['a', 'b']]),
        lambda values: values['model'].update(merges=[['a']], vocab=[1]),
    ],
)
def test_a_damaged_tokenizer_is_one_line(tmp_path, name, change):
    tokenizer = TOKENIZERS[name]
    vocabulary_files.save(
        Vocabulary(tokenizer.tokens, (0,) * len(tokenizer.tokens), tokenizer), tmp_path / 'vocabulary.txt'
    )
    _damage(tmp_path, change)
    with refuses('tokenizer.json'):
        vocabulary_files.load(tmp_path / 'vocabulary.txt')


@pytest.mark.parametrize('merge', [['', 'Ġth'], ['Ġth', ''], ['Ġ', 'nope'], ['Ġ', ['t']], ['Ġ', None]])
def test_a_merge_of_what_is_no_token_is_one_line(tmp_path, merge):
    tokenizer = TOKENIZERS['bpe']
    vocabulary_files.save(
        Vocabulary(tokenizer.tokens, (0,) * len(tokenizer.tokens), tokenizer), tmp_path / 'vocabulary.txt'
    )
    _damage(tmp_path, lambda values: values['model']['merges'].append(merge))
    with refuses('tokenizer.json'):
        vocabulary_files.load(tmp_path / 'vocabulary.txt')


@pytest.mark.parametrize(
    'name, change',
    [
        ('bpe', lambda model: model['merges'].append(model['merges'][0])),
        ('unigram', lambda model: model['vocab'].__setitem__(-1, [model['vocab'][-1][0], 'nan'])),
    ],
)
def test_a_repeated_merge_and_a_score_that_is_no_number_are_one_line(tmp_path, name, change):
    tokenizer = TOKENIZERS[name]
    vocabulary_files.save(
        Vocabulary(tokenizer.tokens, (0,) * len(tokenizer.tokens), tokenizer), tmp_path / 'vocabulary.txt'
    )
    _damage(tmp_path, lambda values: change(values['model']))
    with refuses('tokenizer.json'):
        vocabulary_files.load(tmp_path / 'vocabulary.txt')


@pytest.mark.parametrize('name, other', [('bpe', 'unigram'), ('unigram', 'bpe'), ('characters', 'bytes')])
def test_a_tokenizer_of_another_run_is_one_line(tmp_path, name, other):
    for kind in (name, other):
        tokenizer, folder = TOKENIZERS[kind], tmp_path / kind
        folder.mkdir()
        words = Vocabulary(tokenizer.tokens, (0,) * len(tokenizer.tokens), tokenizer)
        vocabulary_files.save(words, folder / 'vocabulary.txt')
    (tmp_path / name / 'tokenizer.json').write_bytes((tmp_path / other / 'tokenizer.json').read_bytes())
    with refuses('tokenizer.json'):
        vocabulary_files.load(tmp_path / name / 'vocabulary.txt')


@pytest.mark.parametrize('kind', ['pieces', 'characters', 'bytes'])
def test_a_corpus_is_split_by_words_and_the_tokens_are_learned_from_the_training_words(tmp_path, kind):
    words = [f'w{i}' for i in range(70)] + ['übung'] * 30
    (tmp_path / 'text.txt').write_text(' '.join(words))
    choices = corpus_settings('text', tmp_path / 'text.txt', tokens=kind, pieces=301, train=70, valid=20)
    corpus = corpora.load(choices)
    texts = [corpus.tokenizer.decode(corpus.words[span.start : span.stop]) for span in corpus.splits.values()]
    assert texts == [' '.join(words[:70]), ' ' + ' '.join(words[70:90]), ' ' + ' '.join(words[90:])]
    known = encoding.build_vocabulary(corpus, choices)
    assert set(known.words) == set(corpus.tokenizer.tokens) and known.words[0] == '<rare>'
    data = encoding.build_dataset(corpus, known)
    assert data.oov() == {'valid': 0, 'test': 0}
    assert [data.sizes[split].words for split in ('train', 'valid', 'test')] == [70, 20, 10]
    assert not any('Ã¼' in token for token in known.words)  # ü occurs in no training word


def test_more_pieces_than_the_text_has_are_refused(tmp_path):
    (tmp_path / 'text.txt').write_text('the dog barks , the cat sleeps . ' * 20)
    with refuses('corpus.pieces'):
        corpora.load(corpus_settings('text', tmp_path / 'text.txt', tokens='pieces', pieces=900))


def test_every_kind_is_registered():
    assert {type(t) for t in TOKENIZERS.values()} <= {
        component_class('corpus.tokens', kind) for kind in KINDS['corpus.tokens'].paths
    }
