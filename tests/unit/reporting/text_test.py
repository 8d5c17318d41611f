import math

import matplotlib.figure

from nplm_jax.reporting.text import markdown_table, null_to_inf, save_figure, to_json
from nplm_jax.utils.untrusted import parse_json


def test_json_has_no_infinite_number():
    values = {'a': [1.5, math.inf, {'b': math.nan}], 'c': -math.inf, 'd': 'inf'}
    assert to_json(values) == '{"a": [1.5, null, {"b": null}], "c": null, "d": "inf"}'
    assert null_to_inf(None) == math.inf and null_to_inf(3) == 3.0


def test_json_of_bytes_of_a_file_name_can_be_read_again(tmp_path):
    text = to_json({'command': 'train caf\udce9.txt'})
    assert parse_json(tmp_path, text) == {'command': r'train caf\udce9.txt'}


def test_a_table_is_padded_and_floats_have_one_decimal():
    assert markdown_table(['model', 'x'], [['a', 1.25], ['bcdefg', 12]]).splitlines() == [
        '| model  | x   |',
        '|--------|-----|',
        '| a      | 1.2 |',
        '| bcdefg | 12  |',
    ]


def test_a_cell_of_a_table_has_no_bar_and_no_newline():
    assert markdown_table(['next word', 'p'], [['|', 'a\nb']]).splitlines()[2:] == [r'| \|        | a b |']


def test_a_figure_is_a_png(tmp_path):
    save_figure(matplotlib.figure.Figure(), tmp_path / 'a.png')
    assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')
    assert [p.name for p in tmp_path.iterdir()] == ['a.png']
