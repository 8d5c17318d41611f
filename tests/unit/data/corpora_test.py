import itertools
import json
import re

import pytest
from helpers import corpus_settings, numbers, one_line, refuses

from nplm_jax.data import corpora, encoding, text_files, vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.utils.errors import BadInput

TEXT = 'The cat\'s hat. "No!"\nsaid the well-known cat at 3.14.\n\nA dog ran.\n'


def text(path, **choices):
    return corpora.load(corpus_settings('text', path=str(path), **choices))


def test_sentences():
    corpus = corpora.load(corpus_settings('sentences'))
    assert corpus.words == '<text> <p> i like dog <p> i love coffee <p> i hate milk'.split()
    assert corpus.train == corpus.valid == corpus.test == Span(0, 13)


def test_words_of_a_text_file(tmp_path):
    (tmp_path / 'a.txt').write_text(TEXT)
    expected = """<text> <p> the cat 's hat . " no ! " said the well-known cat at 3.14 . <p> a dog ran ."""
    assert text(tmp_path / 'a.txt').words == expected.split()
    plain = dict(boundary_tokens=False, lowercase=False, split_possessive=False)
    assert text(tmp_path / 'a.txt', **plain).words[:6] == ['The', "cat's", 'hat', '.', '"', 'No']
    assert text(tmp_path / 'a.txt', tokens='whitespace', **plain).words[:4] == ['The', "cat's", 'hat.', '"No!"']


LINES = ''.join(f'The dog number {i} ran.\n' for i in range(12))


def test_a_sentence_a_line_is_a_paragraph_a_line_and_is_told(tmp_path, capsys):
    (tmp_path / 'a.txt').write_text(LINES)
    found = text(tmp_path / 'a.txt').words
    assert found == text(tmp_path / 'a.txt', paragraphs='lines').words and found.count('<p>') == 12
    (note,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / 'a.txt') in note
    assert text(tmp_path / 'a.txt', paragraphs='blank_lines').words.count('<p>') == 1
    assert not capsys.readouterr().err


def test_lines_of_a_text_in_several_pieces_are_paragraphs(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 100)
    (tmp_path / 'a.txt').write_text(LINES)
    (tmp_path / 'b.jsonl').write_text(json.dumps({'text': LINES}))
    for name in ('a.txt', 'b.jsonl'):
        words = text(tmp_path / name, paragraphs='lines').words
        assert words[:9] == '<text> <p> the dog number 0 ran . <p>'.split() and words.count('<p>') == 12


def test_special_tokens_in_a_text_are_told_in_one_line(tmp_path, capsys):
    (tmp_path / 'a.txt').write_text('<s> a b </s>\n<s> b <unk> a </s>\n' * 20)
    corpus = text(tmp_path / 'a.txt', paragraphs='lines')
    assert {*corpus.words} == {'<text>', '<p>', 'a', 'b', '<rare>'}
    warning = 'the text has special tokens; skipped: <s> (40 times), </s> (40 times); read as <rare>: <unk> (20 times)'
    assert capsys.readouterr().err == f'{tmp_path}/a.txt: warning: {warning}\n'


def test_a_text_without_blanks_is_told_before_training(tmp_path, capsys):
    (tmp_path / 'a.txt').write_text('我喜欢狗，我爱咖啡，我讨厌牛奶，今天天气很好。')
    text(tmp_path / 'a.txt')
    (line,) = capsys.readouterr().err.splitlines()
    assert 'a.txt: warning: ' in line and '0.0%' in line


def test_letters_keep_their_marks_and_curly_apostrophes_count(tmp_path):
    (tmp_path / 'a.txt').write_text('cafe\u0301 हिन्दी dog\u2019s')
    corpus = text(tmp_path / 'a.txt', boundary_tokens=False, train=0.5, valid=0.25)
    assert corpus.words == [
        'café',
        'हिन्दी',
        'dog',
        '\u2019s',
    ]


def test_splits_are_in_stream_order_and_leave_nothing_out(tmp_path):
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i}' for i in range(100)))
    corpus = text(tmp_path / 'a.txt', boundary_tokens=False, train=0.7, valid=0.2)
    assert (corpus.train, corpus.valid, corpus.test) == (Span(0, 70), Span(70, 90), Span(90, 100))
    corpus = text(tmp_path / 'a.txt', boundary_tokens=False, train=60.0, valid=30.0)
    assert (corpus.train, corpus.valid, corpus.test) == (Span(0, 60), Span(60, 90), Span(90, 100))


@pytest.mark.parametrize('tokens', ['words', 'characters'])
@pytest.mark.parametrize(
    'sizes, ends',
    [
        ((0.5, 0.2, 0.1), (50, 70, 80)),
        ((0.7, 0.2, 0.1), (70, 90, 100)),
        ((60.0, 30.0, 0.05), (60, 90, 95)),
        ((60.0, 30.0, 10.0), (60, 90, 100)),
        ((60.0, 30.0, 0.0), (60, 90, 100)),
    ],
)
def test_a_test_set_of_a_given_size_follows_the_validation_set(tmp_path, tokens, sizes, ends):
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i:02}' for i in range(100)))
    corpus = text(
        tmp_path / 'a.txt', boundary_tokens=False, tokens=tokens, **dict(zip(('train', 'valid', 'test'), sizes))
    )
    width = round(len(corpus.words) / ends[-1])  # tokens of a word, including its space
    found = [round(span.stop / width) for span in corpus.splits.values()]
    assert found == list(ends) and corpus.test.start == corpus.valid.stop


def test_a_test_set_of_lines_ends_with_a_line(tmp_path):
    (tmp_path / 'a.txt').write_text(LINES)
    corpus = text(tmp_path / 'a.txt', train=30.0, valid=12.0, test=8.0)
    words = corpus.words
    assert corpus.has_lines and corpus.test.stop < len(words) and words[corpus.test.stop] == '<p>'
    assert [span.stop for span in corpus.splits.values()] == [36, 43, 50]  # <text>, and lines of seven words


def test_more_words_than_the_text_has_are_refused(tmp_path):
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i}' for i in range(100)))
    for tokens, size in itertools.product(('words', 'bytes'), (11, 20)):
        with refuses(f'corpus.train=60, corpus.valid=30, corpus.test={size}'):
            text(tmp_path / 'a.txt', boundary_tokens=False, tokens=tokens, train=60.0, valid=30.0, test=float(size))
    with refuses('corpus.train=0.8, corpus.valid=0.1, corpus.test=0.2'):
        text(tmp_path / 'a.txt', boundary_tokens=False, test=0.2)


def test_a_shortened_corpus_is_that_of_a_shortened_text_in_the_same_proportions(tmp_path):
    words = [f'w{i * i % 37}' for i in range(100)]
    (tmp_path / 'all.txt').write_text(' '.join(words))
    (tmp_path / 'short.txt').write_text(' '.join(words[:50]))
    for sizes in (dict(train=0.7, valid=0.2), dict(train=70.0, valid=20.0), dict(train=70.0, valid=20.0, test=0.1)):
        for tokens in ('words', 'bytes'):
            choices = dict(boundary_tokens=False, tokens=tokens)
            found = text(tmp_path / 'all.txt', words=50, **choices, **sizes)
            expected = text(tmp_path / 'short.txt', **choices, train=0.7, valid=0.2)
            assert found.words == expected.words and found.splits == expected.splits
            assert found.stream.types == expected.stream.types
            assert (
                text(tmp_path / 'all.txt', words=100, **choices, **sizes).words
                == text(tmp_path / 'all.txt', **choices, **sizes).words
            )


@pytest.mark.parametrize('tokens', ['words', 'characters'])
def test_a_corpus_with_a_file_each_is_shortened_to_the_beginning_of_each(tmp_path, tokens):
    for name, size in (('train', 60), ('valid', 30), ('test', 10)):
        (tmp_path / name).write_text(' '.join(f'{name}{i % 7}' for i in range(size)))
    paths = dict(valid_path=str(tmp_path / 'valid'), test_path=str(tmp_path / 'test'))
    corpus = text(tmp_path / 'train', boundary_tokens=False, tokens=tokens, **paths, words=20)
    texts = [corpus.tokenizer.decode(corpus.words[s.start : s.stop]) for s in corpus.splits.values()]
    names = [[f'{name}{i % 7}' for i in range(size)] for name, size in (('train', 12), ('valid', 6), ('test', 2))]
    assert [t.split() for t in texts] == names
    (tmp_path / 'train').write_text(LINES)
    (tmp_path / 'valid').write_text(LINES)
    (tmp_path / 'test').write_text(LINES)
    corpus = text(tmp_path / 'train', **paths, words=120)
    if tokens == 'words':
        assert [corpus.words[span.start : span.stop].count('ran') for span in corpus.splits.values()] == [6, 6, 6]


@pytest.mark.parametrize('tokens', ['words', 'bytes'])
def test_a_length_that_the_text_lacks_or_that_empties_a_set_is_refused(tmp_path, tokens):
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i}' for i in range(100)))
    for words in (9, 101):
        with refuses('corpus.words'):
            text(tmp_path / 'a.txt', boundary_tokens=False, tokens=tokens, words=words)
    assert all(map(len, text(tmp_path / 'a.txt', boundary_tokens=False, tokens=tokens, words=10).splits.values()))
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i}' for i in range(24)))
    few = text(tmp_path / 'a.txt', boundary_tokens=False, tokens=tokens, words=6, train=0.6, valid=0.15)
    assert all(map(len, few.splits.values()))  # the minimum that the message allows


def test_a_folder_is_read_in_the_order_of_its_names_and_links_are_not_followed(tmp_path):
    (tmp_path / 'in').mkdir()
    (tmp_path / 'secret').write_text('hidden words')
    (tmp_path / 'in' / 'b.txt').write_text('b1 b2')
    (tmp_path / 'in' / 'a.txt').write_text('a1 a2')
    (tmp_path / 'in' / 'link.txt').symlink_to(tmp_path / 'secret')
    (tmp_path / 'in' / '.DS_Store').write_bytes(b'\0\xff')
    assert text(tmp_path / 'in').words == '<text> <p> a1 a2 <text> <p> b1 b2'.split()


@pytest.mark.parametrize('key, value', [('path', 'a.txt'), ('test_path', 'a.txt'), ('column', 'body')])
def test_a_published_corpus_refuses_keys_of_files(key, value):
    with refuses(f'corpus.{key}'):
        corpora.check_settings(corpus_settings('brown', **{key: value}))


def test_files_of_their_own_to_validate_and_test_on(tmp_path):
    for name in ('train', 'valid', 'test'):
        (tmp_path / name).write_text(f'{name} words')
    paths = dict(valid_path=str(tmp_path / 'valid'), test_path=str(tmp_path / 'test'))
    corpus = text(tmp_path / 'train', boundary_tokens=False, **paths)
    assert {k: corpus.words[s.start : s.stop] for k, s in corpus.splits.items()} == {
        'train': ['train', 'words'], 'valid': ['valid', 'words'], 'test': ['test', 'words'],
    }  # fmt: skip
    choices = dict(path=str(tmp_path / 'train'), train=2.0, **paths)
    with refuses('corpus.train'):
        corpora.check_settings(corpus_settings('text', **choices))
    corpora.check_settings(corpus_settings('ap_news', **choices))  # its config sets sizes
    assert len(corpora.load(corpus_settings('text', **choices)).train) == 4  # of a run trained before this check
    with refuses('corpus.test_path'):
        text(tmp_path / 'train', valid_path=paths['valid_path'])
    with refuses('corpus.valid_path'):
        text(tmp_path, **paths)  # the folder contains all three
    with refuses('corpus.test_path'):
        text(tmp_path / '[t]*', **paths)  # train and test
    with refuses('corpus.valid_path'):
        text(tmp_path / 'train', **(paths | {'valid_path': str(tmp_path / '[tv]*')}))
    assert len(text(tmp_path / 'train', **dict.fromkeys(paths, str(tmp_path / 'train'))).words) == 12
    (tmp_path / 'link').symlink_to(tmp_path)
    with refuses('corpus.test_path'):
        text(tmp_path / '[t]*', **(paths | {'test_path': str(tmp_path / 'link' / 'test')}))


@pytest.mark.parametrize('content', [b'', b' \n\n ', b'word word word', b'\x89PNG\r\n\x1a\n\x00', b'a b \0 c'])
def test_a_text_that_is_none(tmp_path, content):
    (tmp_path / 'a').write_bytes(content)
    with pytest.raises(BadInput) as caught:
        text(tmp_path / 'a')
    one_line(str(caught.value), 'corpus.path')


def test_a_text_that_is_missing(tmp_path):
    with refuses('corpus.path'):
        text(tmp_path / 'nowhere')
    with refuses('corpus.path'):
        text('')
    (tmp_path / 'empty').mkdir()
    with refuses('corpus.path'):
        text(tmp_path / 'empty')


@pytest.mark.parametrize(
    'sizes,left', [((5.0, 2.0), 'valid'), ((3.0, 2.0), 'test'), ((0.6, 0.5), 'test'), ((0.01, 0.5), 'train')]
)
def test_a_split_that_leaves_nothing(tmp_path, sizes, left):
    (tmp_path / 'a').write_text('a b c d e')
    with pytest.raises(BadInput) as caught:
        text(tmp_path / 'a', boundary_tokens=False, train=sizes[0], valid=sizes[1])
    assert re.search(rf'\b{left}\b', caught.value.problem) and '5' in numbers(caught.value.problem)


def test_a_split_with_nothing_but_marks_has_no_words(tmp_path):
    for name, size in (('train', 100), ('valid', 4), ('test', 4)):
        (tmp_path / name).write_text('a b c d\nb c a\nd a b c a\n' * size)
    paths = {key: str(tmp_path / key.removesuffix('_path')) for key in ('valid_path', 'test_path')}
    for context in ('stream', 'line'):
        with pytest.raises(BadInput, match='no words in the valid split'):
            text(tmp_path / 'train', paragraphs='lines', words=30, context=context, **paths)
        found = text(tmp_path / 'train', paragraphs='lines', words=400, context=context, **paths)
        assert set(found.words[found.valid.start : found.valid.stop]) > {'a', '<p>'}


@pytest.mark.parametrize(
    'key, name, value',
    [
        ('paragraphs', 'brown', 'lines'),
        ('paragraphs', 'gutenberg', 'lines'),
        ('paragraphs', 'wikitext2', 'blank_lines'),
        ('train', 'wikitext2', 0.1),
        ('valid', 'wikitext103', 1000.0),
        ('test', 'sentences', 0.1),
    ],
)
def test_a_key_that_a_published_corpus_would_ignore_is_refused(key, name, value):
    with refuses(f'corpus.{key}'):
        corpora.check_settings(corpus_settings(name, **{key: value}))
    corpora.check_settings(corpus_settings(name))


@pytest.mark.parametrize('changes, expected', [({}, True), ({'numbers': True}, False), ({'proper_nouns': True}, False)])
def test_symbols_that_replace_numbers_and_names_do_not_spell_the_text(tmp_path, changes, expected):
    (tmp_path / 'a.txt').write_text("In 7 of 9 cases <s> İ Σας dog's ΟΔΟΣ's <unk> said Smith . It was so , said they .")
    corpus = text(tmp_path / 'a.txt', **changes)
    assert corpus.is_spelled == expected
    assert bool(encoding.build_dataset(corpus, vocabulary.build(corpus.words)).sizes) == expected
