"""Tables of stimuli: what they hold, files there and back, and one line for each mistake."""

import math

import pytest

from nplm_jax.data import stimuli, stimulus_files
from nplm_jax.utils.errors import BadInput

TABLE = {'item': ['1', '1', '2'], 'zone': ['1', '2', '1'], 'word': ['The', '"dog,"', 'I'], 'rt': ['3', '4.5', '5']}


def test_a_text_is_words_between_blanks_and_items_between_blank_lines():
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
    tab = ' ' if suffix == '.tsv' else '\t'  # a cell of TSV has no tab
    table = TABLE | {'other': [f'a{tab}b, "c"', ' d', '7']}
    stimulus_files.write(tmp_path / f'table{suffix}', table, text_columns=table)
    found = stimulus_files.read(tmp_path / f'table{suffix}')
    assert found.columns == table and list(found.items) == [range(0, 2), range(2, 3)]


def test_a_missing_number_is_an_empty_cell():
    columns = {'word': ['a', 'b', 'c'], 'rt': [None, math.nan, 2.5]}
    assert stimulus_files.to_text(columns) == 'word\trt\na\t\nb\t\nc\t2.5\n'


def test_parquet_has_numbers_where_all_cells_are_numbers(tmp_path):
    parquet = pytest.importorskip('pyarrow.parquet')
    stimulus_files.write(tmp_path / 'x.parquet', {**TABLE, 'n': [math.nan, 1.5, 2.0]}, text_columns=['word'])
    columns = parquet.read_table(tmp_path / 'x.parquet').to_pydict()
    assert columns['item'] == [1, 1, 2] and columns['rt'] == [3.0, 4.5, 5.0] and columns['n'] == [None, 1.5, 2.0]
    assert columns['word'] == TABLE['word']


def test_a_quotation_mark_of_a_word_and_those_of_a_cell(tmp_path):
    rows = ['"item"\tzone\tword', '1\t1\t"The', '1\t2\tdog."', '1\t3\t"""A"""', '1\t4\t"b"', '1\t5\t"', '']
    (tmp_path / 'x.tsv').write_text('\r\n'.join(rows))
    assert stimulus_files.read(tmp_path / 'x.tsv').words == ['"The', 'dog."', '"A"', 'b', '"']


def test_columns_of_other_names_and_zones_that_are_names(tmp_path):
    (tmp_path / 'x.tsv').write_text('s\tregion\tw\n1\tsubject\tdog\n1\tverb\tran\n')
    found = stimulus_files.read(tmp_path / 'x.tsv', stimuli.ColumnNames('s', 'region', 'w'))
    assert found.words == ['dog', 'ran']


HEAD = 'item,zone,word\n'
WRONG = {
    'item,zone,wrd\n1,1,a': "word column='word': PATH has no such column; it has 'item', 'zone', 'wrd'",
    '': "item column='item': PATH has no such column; it has none",
    HEAD: 'PATH: no row',
    HEAD + '1,1,a\n1,2,': "PATH:3, column 'word': empty",
    HEAD + '1,1,a\n\n,2,b': "PATH:4, column 'item': empty",
    HEAD + '1,1,a\n1,2,b\0': "PATH:3, column 'word': binary, not text (NUL at character 1)",
    HEAD + '1,1,' + 'a' * 1000: "PATH:2, column 'word': a word of 1,000 characters; 999 at most",
    HEAD + '1,1,a\n2,1,b\n1,2,c': "PATH:4, column 'item': item '1' began at row 1 and another item came between; "
    'sort the table by item and zone',
    HEAD + '1,9,a\n1,10,b\n1,10,c': "PATH:4, column 'zone': zone '10' comes after zone '10' of the same item; "
    'sort the table by item and zone',
    HEAD + '1,1,a\n1,2': 'PATH:3: 2 cells; the header has 3',
    HEAD + '1,1,"a': 'PATH:2: not CSV (unexpected end of data)',
    'item,zone,word,word\n1,1,a,b': "column='word': PATH has two of this name",
}


@pytest.mark.parametrize('text', WRONG)
def test_one_line_names_row_and_column(text, tmp_path):
    path = tmp_path / 'x.csv'
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        stimulus_files.read(path)
    assert str(error.value) == WRONG[text].replace('PATH', str(path))


def test_bytes_that_are_no_text_are_named_by_line(tmp_path):
    (tmp_path / 'x.tsv').write_bytes(b'item\tzone\tword\n1\t1\tcaf\xe9\n')
    with pytest.raises(BadInput, match=r'x.tsv:2: not UTF-8 text \(byte 22 of the file\)'):
        stimulus_files.read(tmp_path / 'x.tsv')


def test_a_quoted_cell_with_nothing_in_it_is_empty(tmp_path):
    (tmp_path / 'x.tsv').write_text('item\tzone\tword\n1\t1\t""\n')
    with pytest.raises(BadInput, match="x.tsv:2, column 'word': empty$"):
        stimulus_files.read(tmp_path / 'x.tsv')


def test_other_files_are_refused(tmp_path):
    (tmp_path / 'x.parquet').write_text('no')
    with pytest.raises(BadInput, match='x.parquet: '):
        stimulus_files.read(tmp_path / 'x.parquet')
    with pytest.raises(BadInput, match=r"--table='x.xlsx': must end in .tsv, .csv, .parquet"):
        stimulus_files.read(stimulus_files.pathlib.Path('x.xlsx'))
    with pytest.raises(BadInput, match='x.csv: cannot be read'):
        stimulus_files.read(tmp_path / 'x.csv')


@pytest.mark.parametrize(
    'cells,message',
    [
        (['a', None], "frame, row 2, column 'word': empty"),
        (['a', math.nan], "frame, row 2, column 'word': empty"),
        ([7, 'a'], "frame, row 1, column 'word': holds int, not text"),
        (['a', '\ud800'], "frame, row 2, column 'word': not valid Unicode"),
    ],
)
def test_cells_of_a_frame(cells, message):
    with pytest.raises(BadInput) as error:
        stimuli.from_columns({'item': [1, 1], 'zone': [1, 2], 'word': cells}, 'frame')
    assert str(error.value) == message
