"""Tests tables of stimuli: contents, writing and reading of files, and one-line errors."""

import contextlib
import io
import json
import math
import re

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.apps.psycholinguistics import stimuli, tables
from nplm_jax.utils.errors import BadInput

TABLE = {'item': ['1', '1', '2'], 'zone': ['1', '2', '1'], 'word': ['The', '"dog,"', 'I'], 'rt': ['3', '4.5', '5']}


def test_a_line_of_a_text_is_an_item():
    found = stimuli.from_text('The jury said so.\r\nThe man was old.\n', 'stdin')
    assert found.words == 'The jury said so. The man was old.'.split()
    assert found.columns['item'] == [1, 1, 1, 1, 2, 2, 2, 2] and found.columns['zone'] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert not stimuli.has_blank_lines('\n a \n b\n\n') and stimuli.has_blank_lines('a\n \nb')


def test_blank_lines_between_lines_separate_items_of_several_lines():
    found = stimuli.from_text('\n i like\n dog.\n\n \n I hate', 'stdin')
    assert found.columns == {
        'item': [1, 1, 1, 2, 2],
        'zone': [1, 2, 3, 1, 2],
        'word': ['i', 'like', 'dog.', 'I', 'hate'],
    }
    assert list(found.items) == [range(0, 3), range(3, 5)] and found.words == found.columns['word']


@pytest.mark.parametrize('suffix', ['.tsv', '.csv', '.parquet'])
def test_a_file_keeps_every_cell(suffix, tmp_path):
    if suffix == '.parquet':
        pytest.importorskip('pyarrow')
    tab = ' ' if suffix == '.tsv' else '\t'  # a TSV cell contains no tab
    table = TABLE | {'other': [f'a{tab}b, "c"', ' d', '7']}
    tables.write(tmp_path / f'table{suffix}', table)
    found = stimuli.read(tmp_path / f'table{suffix}')
    assert found.columns == table and list(found.items) == [range(0, 2), range(2, 3)]


def test_a_missing_number_is_an_empty_cell():
    columns = {'word': ['a', 'b', 'c'], 'rt': [None, math.nan, 2.5]}
    assert tables.to_text(columns) == 'word\trt\na\t\nb\t\nc\t2.5\n'


@pytest.mark.parametrize('suffix', ['.tsv', '.csv'])
def test_floats_that_were_read_keep_all_digits(suffix, tmp_path):
    columns = {'id': [1234567890.25, 0.1], 'surprisal': [1234567890.25, 0.12345678912]}
    tables.write(tmp_path / f'x{suffix}', columns, own_columns=['id'])
    lines = (tmp_path / f'x{suffix}').read_text().replace('\t', ',').split()
    assert lines == ['id,surprisal', '1234567890.25,1.23456789e+09', '0.1,0.123456789']


def test_a_bool_is_read_as_one_by_base_r_pandas_and_polars():
    text = tables.to_text({'known': [True, False]}, ',')
    assert text == 'known\nTRUE\nFALSE\n'  # base R reads True as text
    pandas, polars = (pytest.importorskip(name) for name in ('pandas', 'polars'))
    assert pandas.read_csv(io.StringIO(text))['known'].tolist() == [True, False]
    assert polars.read_csv(io.StringIO(text))['known'].to_list() == [True, False]


def test_the_cells_of_a_text_table_stay_text_in_parquet(tmp_path):
    parquet = pytest.importorskip('pyarrow.parquet')
    tables.write(tmp_path / 'x.parquet', {**TABLE, 'n': [math.nan, 1.5, 2.0]})
    assert parquet.read_table(tmp_path / 'x.parquet').to_pydict() == {**TABLE, 'n': [None, 1.5, 2.0]}


@pytest.mark.parametrize(
    'column,expected',
    [
        ([1, 'x2', None], ['1', 'x2', None]),
        ([10**20, None, True], ['100000000000000000000', None, 'TRUE']),
        ([2**63, 1, math.nan], ['9223372036854775808', '1', None]),
        ([{}, None, {}], ['{}', None, '{}']),
        ([{'a': {}}, None, {}], ["{'a': {}}", None, '{}']),
        ([[('a', 1)], None, []], ["[('a', 1)]", None, '[]']),
        ([{'a': 1}, [1], None], ["{'a': 1}", '[1]', None]),
    ],
)
def test_a_column_without_a_type_of_parquet_is_text(column, expected, tmp_path):
    parquet = pytest.importorskip('pyarrow.parquet')
    tables.write(tmp_path / 'x.parquet', {'item': column, 'n': [1, 2, 3]})
    assert parquet.read_table(tmp_path / 'x.parquet').to_pydict() == {'item': expected, 'n': [1, 2, 3]}


def test_one_line_says_what_parquet_refuses(tmp_path):
    pytest.importorskip('pyarrow')
    with refuses('x.parquet'):
        tables.write(tmp_path / 'x.parquet', {'item': ['\ud800']})
    assert not (tmp_path / 'x.parquet').exists()


def test_a_quotation_mark_of_a_word_and_those_of_a_cell(tmp_path):
    rows = ['"item"\tzone\tword', '1\t1\t"The', '1\t2\tdog."', '1\t3\t"""A"""', '1\t4\t"b"', '1\t5\t"', '']
    (tmp_path / 'x.tsv').write_text('\r\n'.join(rows))
    assert stimuli.read(tmp_path / 'x.tsv').words == ['"The', 'dog."', '"A"', 'b', '"']


def test_quotations_at_both_ends_of_a_cell_keep_their_marks(tmp_path):
    cells = {'"Yes," she said, "no."': '"Yes," she said, "no."', '"a ""b"" c"': 'a "b" c', '"a"b"': '"a"b"', '""': ''}
    (tmp_path / 'x.tsv').write_text('\n'.join(['sentence', 'x', *cells]))
    columns, *_ = tables.read(tmp_path / 'x.tsv')
    assert columns['sentence'] == ['x', *cells.values()]


def test_columns_of_other_names_and_zones_that_are_names(tmp_path):
    (tmp_path / 'x.tsv').write_text('s\tregion\tw\n1\tsubject\tdog\n1\tverb\tran\n')
    found = stimuli.read(tmp_path / 'x.tsv', stimuli.ColumnNames(('s',), 'region', 'w'))
    assert found.words == ['dog', 'ran']
    for zones in (['1_2', '1_10', '2_1'], ['999', '1,000', '1,001']):  # numbers in Python; commas of either kind
        assert len(stimuli.from_columns({'item': [1] * 3, 'zone': zones, 'word': ['a'] * 3}, 'table').words) == 3


@pytest.mark.parametrize('zones', [['1,5', '1,25'], ['2,0', '1,0'], ['10', '9,5'], ['3,1', '3,10']])
def test_zones_with_decimal_commas_increase(zones, tmp_path):
    for last, is_refused in ((zones[1], True), ('99,5', False)):
        (tmp_path / 'x.csv').write_text(f'item;zone;word\n1;{zones[0]};a\n1;{last};a\n')
        with refuses('x.csv:3') if is_refused else contextlib.nullcontext():
            assert len(stimuli.read(tmp_path / 'x.csv').words) == 2


HEAD = 'item,zone,word\n'
WRONG = {
    'item,zone,wrd\n1,1,a': "word column='word': ",
    '': "item column='item': ",
    HEAD: 'PATH: ',
    HEAD + '1,1,a\n1,2,': "PATH:3, column 'word': ",
    HEAD + '1,1,a\n\n,2,b': "PATH:4, column 'item': ",
    HEAD + '1,1,a\n1,2,b\0': 'PATH:3: ',
    HEAD + '1,1,' + 'a' * 1000: "PATH:2, column 'word': ",
    HEAD + '1,1,a\n2,1,b\n1,2,c': 'PATH:4: ',
    HEAD + '1,9,a\n1,10,b\n1,10,c': 'PATH:4: ',
    HEAD + '1,1,a\n1,2': 'PATH:3: ',
    HEAD + '1,1,"a': 'PATH:2: ',
    'item,zone,word,word\n1,1,a,b': "column='word': ",
}


@pytest.mark.parametrize('text', WRONG)
def test_one_line_names_row_and_column(text, tmp_path):
    path = tmp_path / 'x.csv'
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        stimuli.read(path)
    assert str(error.value).startswith(WRONG[text].replace('PATH', str(path)))


def test_bytes_that_are_no_text_are_named_by_line(tmp_path):
    (tmp_path / 'x.tsv').write_bytes(b'item\tzone\tword\n1\t1\tcaf\xe9\n')
    with refuses('x.tsv:2'):
        stimuli.read(tmp_path / 'x.tsv')


def test_a_quoted_cell_with_nothing_in_it_is_empty(tmp_path):
    (tmp_path / 'x.tsv').write_text('item\tzone\tword\n1\t1\t""\n')
    with refuses("x.tsv:2, column 'word'"):
        stimuli.read(tmp_path / 'x.tsv')


@pytest.mark.parametrize('key, table', [('--table', 'x.xlsx'), ('x.csv', 'x.csv')])
def test_a_file_that_is_missing_or_of_another_kind_is_refused(key, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses(key):
        tables.read(table)


def test_a_missing_column_is_named_with_the_nearest_one_and_all():
    with refuses('word column') as error:
        stimuli.from_columns({'item': [1], 'zone': [1], 'wrd': ['a']}, 'table')
    assert error.value.value == 'word' and {"'item'", "'zone'", "'wrd';"} <= set(re.split('[ ,]+', error.value.problem))
    assert 'did you mean wrd?' in error.value.problem
    assert error.value.problem.endswith('; choose another column with --word=COLUMN')


def test_an_object_a_line_is_a_row(tmp_path):
    rows = [{'item': 1, 'zone': 1, 'word': 'The', 'rt': None}, {'item': 1, 'zone': 2, 'word': 'dog', 'rt': 4.5}]
    (tmp_path / 'x.jsonl').write_text('\n\n'.join(map(json.dumps, rows)))
    assert stimuli.read(tmp_path / 'x.jsonl').columns == {key: [row[key] for row in rows] for key in rows[0]}
    (tmp_path / 'y.jsonl').write_text('{"item": 1, "zone": 1, "word": "a"}\n\n{"item": 1, "zone": 2}\n')
    with refuses("y.jsonl:3, column 'word'"):
        stimuli.read(tmp_path / 'y.jsonl')


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    (tmp_path / 'x.parquet').write_text('no')
    with refuses('x.parquet'):
        stimuli.read(tmp_path / 'x.parquet')


@pytest.mark.parametrize(
    'cells,row', [(['a', None], 2), (['a', math.nan], 2), (['a', 'b\0'], 2), ([7, 'a'], 1), (['a', '\ud800'], 2)]
)
def test_cells_of_a_frame(cells, row):
    with refuses(f"frame, row {row}, column 'word'"):
        stimuli.from_columns({'item': [1, 1], 'zone': [1, 2], 'word': cells}, 'frame')


@pytest.mark.parametrize('cell,kind', [([1], 'list'), ({'a': 1}, 'dict'), (np.array([1]), 'ndarray')])
def test_an_item_that_cannot_be_compared_is_refused(cell, kind):
    columns = {'item': [1, cell], 'zone': [1, 1], 'word': ['a', 'b']}
    with refuses("frame, row 2, column 'item'"):
        stimuli.from_columns(columns, 'frame')
    with refuses("frame, row 2, column 'item'"):
        stimuli.from_sentences({'item': [1, cell], 'text': ['a', 'b']}, 'text', 'frame')


@pytest.mark.parametrize('unit', ['us', 'ms'])
def test_a_time_after_the_year_9999_is_one_line(unit, tmp_path):
    parquet, pyarrow = (pytest.importorskip(name) for name in ('pyarrow.parquet', 'pyarrow'))
    times = pyarrow.array([2**48 if unit == 'ms' else 2**58], pyarrow.timestamp(unit))
    table = {'item': [1], 'zone': [1], 'word': ['a'], 'time': times}
    parquet.write_table(pyarrow.table(table), tmp_path / 'x.parquet')
    with refuses('x.parquet'):
        stimuli.read(tmp_path / 'x.parquet')


CROSSED = {
    'item': ['1', '1', '1', '1', '2'],
    'condition': ['a', 'a', 'b', 'b', 'a'],
    'zone': ['1', '2', '1', '2', '1'],
    'word': ['The', 'dog', 'A', 'dog', 'I'],
}


def test_several_columns_identify_an_item_together():
    found = stimuli.from_columns(CROSSED, 'table', stimuli.ColumnNames(('item', 'condition')))
    assert list(found.items) == [range(0, 2), range(2, 4), range(4, 5)]
    with refuses('table, row 3'):
        stimuli.from_columns(CROSSED, 'table')
    without = {key: cells for key, cells in CROSSED.items() if key != 'zone'}
    for names in (('item',), ('item', 'condition')):
        with refuses('zone column') as error:
            stimuli.from_columns(without, 'table', stimuli.ColumnNames(names))
        assert all(name in error.value.problem for name in ("'item'", "'condition'", "'word'"))
    unsorted = {key: cells[2:] + cells[:2] + cells[2:3] for key, cells in CROSSED.items()}
    with refuses('table, row 6'):
        stimuli.from_columns(unsorted, 'table', stimuli.ColumnNames(('item', 'condition')))


SENTENCES = {'item': ['1', '1'], 'condition': ['a', 'b'], 'text': ['The  dog, ran.', 'I like it'], 'rt': ['3,5', '4']}


def test_a_row_with_a_sentence_becomes_a_row_for_each_word():
    names = stimuli.ColumnNames(('item', 'condition'))
    found, rows = stimuli.from_sentences(SENTENCES, 'text', 'table', names)
    assert found.words == ['The', 'dog,', 'ran.', 'I', 'like', 'it'] and rows == [0, 0, 0, 1, 1, 1]
    assert found.columns['zone'] == [1, 2, 3, 1, 2, 3] and found.columns['rt'] == ['3,5'] * 3 + ['4'] * 3
    assert list(found.columns) == [*SENTENCES, 'zone', 'word'] and list(found.items) == [range(0, 3), range(3, 6)]


def test_rows_with_sentences_are_numbered_where_no_column_has_items():
    found, _ = stimuli.from_sentences({'text': ['a b', 'a']}, 'text', 'table')
    assert found.columns == {'item': [1, 1, 2], 'text': ['a b', 'a b', 'a'], 'zone': [1, 2, 1], 'word': ['a', 'b', 'a']}


@pytest.mark.parametrize(
    'changes,message',
    [
        ({}, "item='1': table has two rows with this item; "),
        ({'item': ['1', '2'], 'text': ['a', ' ']}, "table, row 2, column 'text': "),
        ({'item': ['1', '2'], 'text': ['a', 7]}, "table, row 2, column 'text': "),
        ({'item': ['1', '2'], 'text': ['a', 'b' * 1000]}, "table, row 2, column 'word': "),
        (
            {'item': ['1', '2'], 'word': ['a', 'b']},
            "word column='word': ",
        ),
    ],
)
def test_one_line_says_what_is_wrong_with_sentences(changes, message):
    with pytest.raises(BadInput) as error:
        stimuli.from_sentences({**SENTENCES, **changes}, 'text', 'table')
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    'name,text,rt',
    [
        ('x.csv', '\ufeffitem;zone;word;rt\r\n1;1;"The; ""dog""";3,5\r\n1;2;a,;4,25\r\n', '3,5'),
        ('x.csv', 'item\tzone\tword\trt\n1\t1\tThe; "dog"\t3,5\n1\t2\ta,\t4,25\n', '3,5'),
        ('x.csv', 'item,zone,word,rt\n1,1,"The; ""dog""",3.5\n1,2,"a,",4.25\n', '3.5'),
        ('x.tsv', 'item;zone;word;rt\n1;1;"The; ""dog""";3,5\n1;2;a,;4,25\n', '3,5'),
        ('x.csv', 'item;zone;word;rt (first, second, all, mean)\n1;1;"The; ""dog""";3,5\n1;2;a,;4\n', '3,5'),
    ],
)
def test_the_separator_of_a_table_is_recognised_and_decimal_commas_stay(name, text, rt, tmp_path):
    (tmp_path / name).write_text(text, newline='')
    found = stimuli.read(tmp_path / name)
    assert found.words == ['The; "dog"', 'a,'] and list(found.columns.values())[3][0] == rt
    assert list(found.columns)[:3] == ['item', 'zone', 'word']


def test_sentences_with_many_commas_between_semicolons(tmp_path):
    (tmp_path / 'x.csv').write_text('item;text\n1;The dog, the cat, and I\n2;So, then, we ran, too\n')
    assert len(stimuli.read(tmp_path / 'x.csv', sentence='text').words) == 11


@pytest.mark.parametrize(
    'columns, column',
    [
        ({'sentence': ['the dog ran', 'a cat']}, 'sentence'),
        ({'item': [1, 2], 'text': ['the dog ran', 'a cat']}, 'text'),
        ({'item': [1, 2], 'zone': [1, 1], 'kind': ['a', 'b'], 'stimulus': ['the dog ran', 'a cat']}, 'stimulus'),
        ({'word': ['the', 'dog']}, ''),
        ({'item': [1, 1], 'zone': [1, 2], 'note': ['one two', None]}, ''),
    ],
)
def test_a_table_with_one_sentence_a_row_is_told_how_to_be_read(tmp_path, columns, column):
    rows = zip(*([cell if cell is not None else '' for cell in cells] for cells in columns.values()))
    lines = [','.join(columns), *(','.join(map(str, row)) for row in rows)]
    (tmp_path / 'stim.csv').write_text('\n'.join(lines) + '\n')
    with pytest.raises(BadInput) as caught:
        stimuli.read(tmp_path / 'stim.csv', sentence_flag='--sentence=')
    assert caught.value.problem.endswith(f'--sentence={column}') if column else '--sentence' not in caught.value.problem
    if column and 'zone' not in columns:
        assert stimuli.read(tmp_path / 'stim.csv', sentence=column).words[:3] == ['the', 'dog', 'ran']
    with pytest.raises(BadInput) as caught:  # commands that read no sentences do not give this advice
        stimuli.read(tmp_path / 'stim.csv')
    assert '--sentence' not in caught.value.problem
