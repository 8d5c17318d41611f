"""Tests that files are found, are read in chunks with unchanged paragraphs, and give one-line errors."""

import contextlib
import gzip
import json
import os
import re
import sys
import tracemalloc
from itertools import pairwise

import pytest
from helpers import refuses
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nplm_jax.data import formats, text_files, wikitext103
from nplm_jax.data.text_files import find_files, read_chunks, size
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.untrusted import decode_blocks

TEXT = 'One two.\nThree\n\nfour \u00e9 five\r\n\r\nsix'
CHARACTERS = ('\n', '\n\n', '\r\n', ' ', '\t', '\u2003', '\x1d', 'a', 'bc', '3.', '-', "'", '\u0301', 'e', '\ufeff')


def read(file, column='text'):
    return list(read_chunks('corpus.path', file, column))


def texts(chunks):
    """Returns the joined texts of chunks."""
    joined = []
    for chunk in chunks:
        if chunk.begins_text:
            joined.append('')
        joined[-1] += chunk.text
    return joined


def paragraphs_of(chunks, tokenizer):
    """Returns the paragraphs of the chunks, which are split separately."""
    joined = []
    for chunk in chunks:
        first, *others = cutting.paragraphs(tokenizer, chunk) or [None]
        if first is not None and chunk.begins_paragraph:
            joined.append(first)
        elif first is not None:
            joined[-1] = joined[-1] + first
        joined += others
    return joined


def zstd(data):
    return pytest.importorskip('backports.zstd').compress(data)


# --- chunks ------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(CHARACTERS)
        | st.text(max_size=4).filter(lambda text: '\0' not in text),
        max_size=60,
    ),
    st.sampled_from(['words', 'whitespace', 'lmplz']),
    st.integers(1, 30),
    st.integers(1, 9),
)  # fmt: skip
@example(['a', '\n', ' \n', 'b'], 'words', 2, 1)
@example(['a\n\n', '\u0301b\u0327\u0301', '\n\n', '\n', 'c d\ne'], 'words', 3, 2)
@example(['ab c\xa0d'], 'lmplz', 6, 6)
@example(['a\n\n'], 'lmplz', 3, 2)
def test_the_chunks_have_the_paragraphs_of_the_whole_text(parts, kind, size, part_size):
    is_lmplz = kind == 'lmplz'
    text = ''.join(parts).replace('\n', '\n\n' if is_lmplz else '\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, 'CHUNK_CHARACTERS', size)
        patch.setattr(text_files, '_SEARCH_CHARACTERS', part_size)
        chunks = list(text_files.cut(parts, is_lmplz, is_lmplz))
    assert ''.join(chunk.text for chunk in chunks) == text
    assert [chunk.begins_text for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    tokenizer = WordTokenizer(kind, is_verbatim=is_lmplz)
    assert paragraphs_of(chunks, tokenizer) == cutting.paragraphs(
        tokenizer, TextChunk(text, True, keeps_empty=is_lmplz)
    )


def test_a_chunk_begins_with_the_space_before_its_first_word(monkeypatch):
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 9)
    monkeypatch.setattr(text_files, '_SEARCH_CHARACTERS', 4)
    assert [chunk.text for chunk in text_files.cut(['The cat sat and left'])] == ['The cat', ' sat', ' and', ' left']


@settings(max_examples=200)
@given(st.text(max_size=40).filter(lambda text: '\0' not in text), st.booleans(), st.integers(1, 9))
def test_blocks_decode_to_the_text_wherever_they_split(text, has_mark, size):
    data = b'\xef\xbb\xbf' * has_mark + text.encode()
    blocks = [data[i : i + size] for i in range(0, len(data), size)]
    assert ''.join(decode_blocks('it', blocks)) == data.decode('utf-8-sig')


def test_a_chunk_ends_at_a_blank_line_or_inside_a_long_paragraph_at_a_line_end(monkeypatch):
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 8)
    monkeypatch.setattr(text_files, '_SEARCH_CHARACTERS', 4)
    chunks = list(text_files.cut(['ab\n\ncd ef\ngh ij\nk lmnopqrstuv\n\nw xyz abc']))
    assert chunks == [
        TextChunk('ab\n\n', True),
        TextChunk('cd ef\n', False),
        TextChunk('gh ij\n', False, False),
        TextChunk('k', False, False),
        TextChunk(' lmnopqrstuv\n\n', False, False),
        TextChunk('w xyz abc', False),
    ]


def test_a_long_text_without_a_blank_line_is_read_in_little_memory(tmp_path):
    file = tmp_path / 'a.txt.gz'
    file.write_bytes(gzip.compress(b'some words of a line\n' * 600_000, 1))  # 12.6 MB of text
    tracemalloc.start()
    try:
        sizes = [len(chunk.text) for chunk in read_chunks('corpus.path', file, '')]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 12_600_000 and max(sizes) < 1.3 * 2**20 and peak < 8 * 2**20


# --- formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['a.txt', 'a', 'a.md', 'a.train', 'a.GZ', 'a.txt.gz', 'a.txt.zst', 'a.zst'])
def test_a_file_of_text_is_one_text(tmp_path, name):
    (tmp_path / name).write_bytes(TEXT.encode())
    if name.lower().endswith('gz'):
        (tmp_path / name).write_bytes(gzip.compress(TEXT[:9].encode()) + gzip.compress(TEXT[9:].encode()))
    elif name.endswith('zst'):
        skipped = b'\x50\x2a\x4d\x18' + (4).to_bytes(4, 'little') + b'abcd'
        (tmp_path / name).write_bytes(zstd(TEXT[:9].encode()) + skipped + zstd(TEXT[9:].encode()))
    assert read(tmp_path / name) == [TextChunk(TEXT, True)]


@pytest.mark.parametrize('data', [b'', b'\xef\xbb\xbf'])
def test_an_empty_file_is_an_empty_text(tmp_path, data):
    (tmp_path / 'a.txt').write_bytes(data)
    assert read(tmp_path / 'a.txt') == [TextChunk('', True)]


@pytest.mark.parametrize('suffix', ['.jsonl', '.v2.jsonl', '.jsonl.gz', '.jsonl.zst'])
def test_each_line_of_json_is_a_text(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(text_files, 'CHUNK_CHARACTERS', 8)
    rows = [
        {'text': 'a b'},
        {'n': [float('nan')], 'text': 'c\n\nd e f g h'},
        {'text': ' \n'},
        {'text': None},
        {'text': 'i'},
    ]
    data = b'\xef\xbb\xbf' + '\n\r\n'.join(map(json.dumps, rows)).encode()
    compress = {'.jsonl': bytes, '.jsonl.gz': gzip.compress, '.jsonl.zst': zstd}[suffix.removeprefix('.v2')]
    (tmp_path / f'a{suffix}').write_bytes(compress(data))
    chunks = read(tmp_path / f'a{suffix}')
    assert texts(chunks) == ['a b', 'c\n\nd e f g h', 'i'] and len(chunks) == 4


def test_each_row_of_parquet_is_a_text(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')

    monkeypatch.setattr(formats, '_ROWS', 3)
    words = ['a b', None, 'c\n\nd \u00e9', '', *map(str, range(20))]
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        column = pyarrow.array(words, pyarrow.string()).cast(kind)
        table = pyarrow.table({'n': range(len(words)), 'text': column, 'body': column})
        parquet.write_table(table, tmp_path / 'a.parquet', row_group_size=10)
        for name in ('text', 'body'):
            assert texts(read(tmp_path / 'a.parquet', name)) == [word for word in words if word]
    (tmp_path / 'a.parquet.gz').write_bytes(gzip.compress((tmp_path / 'a.parquet').read_bytes()))
    assert read(tmp_path / 'a.parquet.gz') == read(tmp_path / 'a.parquet')


@pytest.mark.parametrize('new,is_refused', [('', False), ('score', False), ('n', True)])
def test_a_new_column_must_be_one_that_a_table_has_not(tmp_path, new, is_refused):
    table = pytest.importorskip('pyarrow').table({'n': [1], 'text': ['a b']})
    pytest.importorskip('pyarrow.parquet').write_table(table, tmp_path / 'a.parquet')
    with open(tmp_path / 'a.parquet', 'rb') as content, refuses('a') if is_refused else contextlib.nullcontext():
        assert [words for _, words in formats.read_batches('a', content, '.parquet', 'text', False, new)] == [['a b']]


def save_dataset(folder, shards):
    """Writes the files of `Dataset.save_to_disk`, one per shard."""
    pyarrow = pytest.importorskip('pyarrow')
    folder.mkdir(parents=True)
    names = [f'data-{i:05d}-of-{len(shards):05d}.arrow' for i in range(len(shards))]
    for name, rows in zip(names, shards):
        table = pyarrow.table({'text': rows})
        with pyarrow.ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    (folder / 'state.json').write_text(json.dumps({'_data_files': [{'filename': n} for n in names], '_split': 'train'}))
    (folder / 'dataset_info.json').write_text('{"features": {}}')
    return [folder / name for name in names]


def test_a_datasets_folder_is_read_in_the_order_of_its_rows(tmp_path):
    shards = [['a', 'b b', 'c'], ['d\n\ne']]
    files = save_dataset(tmp_path / 'data', shards)
    assert find_files('corpus.path', str(tmp_path / 'data')) == files
    assert [texts(read(file)) for file in files] == shards


def test_of_a_datasets_folder_with_splits_train_is_read(tmp_path):
    test = save_dataset(tmp_path / 'all' / 'test', [['a']])
    (tmp_path / 'all' / 'dataset_dict.json').write_text('{"splits": ["test"]}')
    with refuses('corpus.path'):
        find_files('corpus.path', str(tmp_path / 'all'))
    train = save_dataset(tmp_path / 'all' / 'train', [['b'], ['c']])
    assert find_files('corpus.path', str(tmp_path / 'all')) == train
    assert find_files('corpus.path', str(tmp_path / 'all' / 'test')) == test
    (tmp_path / 'all' / 'test' / 'state.json').write_text('{"_data_files": [7]}')
    with refuses('all/test/state.json'):
        find_files('corpus.path', str(tmp_path / 'all' / 'test'))


# --- files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    for name in ('b.txt', 'a/c.txt', 'a/d/e.gz', '.hidden', 'a/.git/f.txt'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / 'link.txt').symlink_to(tmp_path / 'b.txt')
    (tmp_path / 'linked').symlink_to(tmp_path / 'a')
    return tmp_path


@pytest.mark.parametrize(
    'path, expected',
    [
        ('b.txt', ['b.txt']),
        ('link.txt', ['link.txt']),
        ('', ['a/c.txt', 'a/d/e.gz', 'b.txt']),
        ('*.txt', ['b.txt']),
        ('?.txt', ['b.txt']),
        ('**/[a-d].txt', ['a/c.txt', 'b.txt']),
        ('**', ['a/c.txt', 'a/d/e.gz', 'b.txt']),
        ('a/*/*.gz', ['a/d/e.gz']),
        ('*/c.txt', ['a/c.txt']),
        ('linked/*.txt', ['linked/c.txt']),
        ('**/**/*.txt', ['a/c.txt', 'b.txt']),  # `glob` finds a/c.txt twice
    ],
)
def test_files_of_a_folder_and_of_a_pattern(tree, path, expected):
    assert find_files('corpus.path', str(tree / path)) == [tree / name for name in expected]


def test_a_file_named_like_a_pattern_is_that_file(tree):
    (tree / '[b].txt').write_text('')
    assert find_files('corpus.path', str(tree / '[b].txt')) == [tree / '[b].txt']


@pytest.mark.parametrize('path', ['nowhere', 'nowhere/*.txt', '*/d', 'empty'])
def test_paths_without_a_file_are_one_line(tree, path):
    (tree / 'empty').mkdir()
    with refuses('corpus.path'):
        find_files('corpus.path', str(tree / path))
    with refuses('corpus.path'):  # not the working folder
        find_files('corpus.path', '')


def test_a_folder_whose_files_cannot_be_looked_up_is_one_line(tmp_path, monkeypatch):
    (tmp_path / 'closed').mkdir()
    stat = os.stat

    def refuse(path, *args, **options):
        if str(path).startswith(f'{tmp_path}/closed/'):
            raise PermissionError(13, 'Permission denied')
        return stat(path, *args, **options)

    monkeypatch.setattr(os, 'stat', refuse)
    for find in (find_files, lambda _, path: wikitext103.find(path)):
        with refuses('corpus.path'):
            find('corpus.path', str(tmp_path / 'closed'))


# --- what cannot be read -----------------------------------------------------------------------------------------

SOURCE = 'words and words\n\n' * 9000
BAD = [
    ('a.txt', b'abc \xff', "a.txt'", 'byte 4'),  # file, content, end of the key, message
    ('a.txt', b'\xef\xbb\xbfabc \xff', "a.txt'", 'byte 7'),
    ('a.txt', b'abc \xe2\x82', "a.txt'", 'byte 4'),  # the file ends within a character
    ('a.txt', b'x' * 300_000 + b'\xff' + b'x' * 99, "a.txt'", 'byte 300,000'),
    ('a.txt', '\u00e9'.encode() * 200_000 + b'\0', "a.txt'", '200,000'),
    ('a.txt', b'\x89PNG\r\n\x1a\n\x00', "a.txt'", 'byte 0'),
    ('a.gz', b'abc', "a.gz'", '.gz'),
    ('a.gz', b'', "a.gz'", ''),
    ('a.txt.gz', gzip.compress(SOURCE.encode())[:-9], "a.txt.gz'", ''),
    ('a.gz', gzip.compress(SOURCE.encode())[:-8] + b'\0' * 8, "a.gz'", 'CRC'),
    ('a.gz', gzip.compress(b'abc \xff'), "a.gz'", 'byte 4'),
    ('a.jsonl', b'{"text": "a"}\n7\n', 'a.jsonl:2', 'JSON'),
    ('a.jsonl', b'{"text": "a"}\n{"text": \n', 'a.jsonl:2', 'JSON'),
    ('a.jsonl', b'\n{"body": "a", "id": 3}', 'a.jsonl:2', "'body', 'id'"),
    ('a.jsonl', b'{}', 'a.jsonl:1', "'text'"),
    ('a.jsonl', b'{"text": 3}', "a.jsonl:1, column 'text'", 'int'),
    ('a.jsonl', b'{"text": "a\xff"}', 'a.jsonl:1', '11'),
    ('a.jsonl', b'{"text": "a\\u0000"}', "a.jsonl:1, column 'text'", '1'),
    ('a.jsonl', b'{"text": "a\\ud800"}', "a.jsonl:1, column 'text'", ''),
    ('a.jsonl', b'{"text": ' + b'[' * 99_999, 'a.jsonl:1', 'JSON'),
    ('a.jsonl', b'{"text": ' + b'1' * 9999 + b'}', 'a.jsonl:1', 'JSON'),
    ('a.parquet.gz', b'', "a.parquet.gz'", ''),
]


@pytest.mark.parametrize('name, data, key, said', BAD, ids=range(len(BAD)))
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, name, data, key, said):
    (tmp_path / name).write_bytes(data)
    with refuses(key) as caught:
        read(tmp_path / name)
    assert said in caught.value.problem and '\n' not in str(caught.value)


def test_the_offset_of_a_bad_byte_is_right_beyond_four_gigabytes():
    class Long(bytes):
        def __len__(self):
            return 2**32 + 5

    with refuses('it'):
        list(decode_blocks('it', [Long(b'first'), b'ab\xff']))


def test_a_zst_that_is_damaged_or_ends_in_the_middle(tmp_path):
    data = zstd(SOURCE.encode() + os.urandom(20_000).hex().encode())
    file = tmp_path / 'a.zst'
    for end in (0, 3, 100, len(data) - 1):
        file.write_bytes(data[:end])
        with refuses("a.zst'"):
            read(file)
    for damaged in (b'no zstd at all', data + b'more'):
        file.write_bytes(damaged)
        with refuses("a.zst'"):
            read(file)


def test_a_fifo_and_a_folder_are_refused(tmp_path):
    os.mkfifo(tmp_path / 'fifo.jsonl')
    for name in ('fifo.jsonl', '.'):
        with pytest.raises(BadInput, match=str(tmp_path / name)):
            read(tmp_path / name)
    with refuses('fifo.jsonl'):
        size(tmp_path / 'fifo.jsonl')


def test_a_line_of_json_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, '_MAX_LINE_BYTES', 99)
    (tmp_path / 'a.jsonl').write_text('{"text": "a"}\n{"text": "' + 'a' * 200)
    with refuses('a.jsonl:2'):
        read(tmp_path / 'a.jsonl')


def test_a_table_that_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')

    monkeypatch.setattr(formats, '_ROWS', 2)
    bad = pyarrow.array([b'a', b'b', b'\xff']).view(pyarrow.string())
    table = pyarrow.table({'body': ['a', 'b', 'c'], 'n': [1, 2, 3], 'nul': ['a', 'a\0', 'a'], 'bad': bad})
    for file in (tmp_path / 'a.parquet', tmp_path / 'a.arrow'):
        if file.suffix == '.parquet':
            parquet.write_table(table, file)
        else:
            with pyarrow.ipc.new_stream(str(file), table.schema) as stream:
                stream.write_table(table)
        for column, where, said in [
            ('text', "'", "'body', 'n', 'nul', 'bad'"),
            ('n', "', row 1, .*'n'", 'int'),
            ('nul', "', row 2, .*'nul'", '1'),
            ('bad', "', row [13] .*'bad'", 'UTF-8'),
        ]:
            with pytest.raises(BadInput) as caught:
                read(file, column)
            assert re.fullmatch(f"corpus.path='{file}{where}", caught.value.key) and said in caught.value.problem
        data = file.read_bytes()
        for damaged in (b'', b'no table', data[: len(data) // 2]):
            file.write_bytes(damaged)
            with refuses(f"corpus.path='{file}'"):
                read(file, 'body')


@pytest.mark.parametrize(
    'name, package', [('a.zst', 'backports.zstd'), ('a.parquet', 'pyarrow'), ('a.arrow', 'pyarrow')]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b'abc')
    with refuses(f"corpus.path='{tmp_path / name}'") as caught:
        read(tmp_path / name)
    assert package in caught.value.problem and 'pip install "nplm-jax[corpora]"' in caught.value.problem


def test_chunks_of_several_files_follow_the_paths(tree):
    chunks = [chunk for file in find_files('corpus.path', str(tree / 'a' / '*.txt')) for chunk in read(file)]
    assert chunks == [TextChunk('a/c.txt', True)]
    files = find_files('corpus.path', str(tree))
    assert all(a < b for a, b in pairwise(files))
