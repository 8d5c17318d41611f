"""Tests that documents are selected by the perplexity that `nplm score` prints, and keep their format."""

import gzip
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from helpers import check_unknown_words, refuses, write_arpa
from language_runs import make_runs

from nplm_jax.apps.filter import distribution, documents, selection
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.runs.command_models import load_models

TEXTS = (
    'the cat is walking in the bedroom',
    '',
    'a dog was running in a room',
    'zebra zebra',
    'the cat is walking\nin the room\n\na dog',
    '  ',
    'the dog is walking in the zebra room',
)
FULL = [text for text in TEXTS if text.strip()]
UNKNOWN = (TEXTS[0], 'zebra zebra')  # the documents without any word known to the runs of `folders`


@pytest.fixture
def docs(tmp_path):
    rows = [f'{{"id": {i}, "text": {json.dumps(text)},  "price": 1.50}}' for i, text in enumerate(TEXTS)]
    (tmp_path / 'docs.jsonl').write_text('\n'.join([*rows, '', '{"text": null, "id": -1}']))  # no line end
    return tmp_path / 'docs.jsonl'


def scored(folder, text, monkeypatch, nplm_command, *flags):
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
    out, _ = nplm_command('score', folder, '--json', '--summary', *flags)
    return json.loads(out[0])['perplexity']


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def perplexities_of(file, column='p'):
    return [math.inf if row[column] is None else row[column] for row in rows_of(file)]


# --- the number --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('end', ([], ['--end']), ids=('', 'with line ends'))
@pytest.mark.parametrize('kind', ('network', 'counts', 'arpa', 'packed'))
def test_the_perplexity_is_that_of_score(kind, end, folders, docs, tmp_path, monkeypatch, nplm_command):
    monkeypatch.setattr(documents, '_CHARACTERS', 40)
    folder = model = folders / kind
    if kind == 'arpa':
        model = folder = tmp_path / 'lm.arpa'
        write_arpa(folders / 'counts', model)
    if kind == 'packed':
        model, folder = tmp_path / 'lm.nplm', folders / 'counts'
        nplm_command('pack', folder, f'--output={model}')
    output = tmp_path / 'scored.jsonl'
    nplm_command('filter', model, '--text', docs, '--column=perplexity', f'--output={output}', *end)
    found = rows_of(output)
    assert [row['text'] for row in found] == FULL
    expected = [
        scored(folder, text, monkeypatch, nplm_command, *end) if text not in UNKNOWN else math.inf for text in FULL
    ]
    np.testing.assert_allclose(perplexities_of(output, 'perplexity'), expected, rtol=1e-6)


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_segmented_documents_are_scored_without_their_spaces(tmp_path, nplm_command):
    folder = make_runs(tmp_path, ['chinese']) / 'chinese'
    (tmp_path / 'in.jsonl').write_text('{"text": "人人生而自由"}\n{"text": "人人 生而 自由"}\n', encoding='utf-8')
    nplm_command('filter', folder, '--text', tmp_path / 'in.jsonl', '--column=p', f'--output={tmp_path / "out.jsonl"}')
    joined, segmented = perplexities_of(tmp_path / 'out.jsonl')
    assert joined == segmented < math.inf


@pytest.mark.skipif(not shutil.which('query'), reason="needs KenLM's query")
def test_with_line_ends_it_is_the_perplexity_of_kenlm(folders, tmp_path, nplm_command):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    (tmp_path / 'in.jsonl').write_text(''.join(f'{json.dumps({"text": text})}\n' for text in FULL))
    output = tmp_path / 'out.jsonl'
    arguments = (tmp_path / 'lm.arpa', '--text', tmp_path / 'in.jsonl', '--end', '--column=p')
    nplm_command('filter', *arguments, f'--output={output}')
    for row in (row for row in rows_of(output) if row['text'] not in UNKNOWN):
        command = ['query', '-v', 'summary', str(tmp_path / 'lm.arpa')]
        done = subprocess.run(command, input=row['text'] + '\n', capture_output=True, text=True, check=True)
        assert row['p'] == pytest.approx(float(done.stdout.split('\n')[0].split('\t')[1]), rel=1e-5)


def test_an_infinite_perplexity_is_null_in_json_and_beyond_every_bound(docs, tmp_path, nplm_command):
    (tmp_path / 'lm.arpa').write_text(
        '\\data\\\nngram 1=3\n\n\\1-grams:\n-99\t<unk>\n-0.3\tthe\n-0.3\tcat\n\n\\end\\\n'
    )
    output, model = tmp_path / 'all.jsonl', tmp_path / 'run'
    nplm_command('import', tmp_path / 'lm.arpa', f'--workdir={model}')  # log10 P of -99: a probability of zero
    out, _ = nplm_command('filter', model, '--text', docs, '--column=p', f'--output={output}')
    assert {row['p'] for row in rows_of(output)} == {None} and any('infinite' in line for line in out)
    nplm_command('filter', model, '--text', docs, '--below=1e300', f'--output={tmp_path / "b.jsonl"}')
    assert not rows_of(tmp_path / 'b.jsonl')


def test_documents_of_which_nothing_is_known_are_never_kept_below_a_bound(tmp_path, nplm_command):
    """A model with SentencePiece tokens reads plain text."""
    unigrams = ''.join(f'-0.9\t\u2581{word}\n' for word in ('the', 'cat', 'sat'))
    (tmp_path / 'lm.arpa').write_text(f'\\data\\\nngram 1=4\n\n\\1-grams:\n-3\t<unk>\n{unigrams}\n\\end\\\n')
    (tmp_path / 'in.jsonl').write_text(
        '{"text": "The cat sat"}\n{"text": "the cat"}\n{"text": "a dog"}\n{"text": "<rare> <unk>"}\n'
    )
    for bound, kept in (('--below=1e300', 0), ('--below=90%', 0), ('--above=5', 4)):
        output = tmp_path / f'{bound}.jsonl'
        arguments = ('filter', tmp_path / 'lm.arpa', '--text', tmp_path / 'in.jsonl', bound, f'--output={output}')
        out, err = nplm_command(*arguments)
        assert len(rows_of(output)) == kept and f'{output}: {kept} of 4 documents' in out
        assert any(line.startswith('4 documents ') for line in out)  # without any known word
        assert ['100.0%' in line for line in err] == [True]


# --- bounds ------------------------------------------------------------------------------------------------------


def test_the_documents_below_a_bound_and_those_above_it_are_all_documents(folders, docs, tmp_path, nplm_command):
    arguments = ('filter', folders / 'counts', '--text', docs)
    nplm_command(*arguments, '--column=p', f'--output={tmp_path / "all.jsonl"}')
    ids = [row['id'] for row in rows_of(tmp_path / 'all.jsonl')]
    perplexities = dict(zip(ids, perplexities_of(tmp_path / 'all.jsonl')))
    bound = sorted(perplexities.values())[2]
    for value, name in ((repr(bound), 'number'), ('40%', 'share')):
        kept = {}
        for flag in ('below', 'above'):
            output = tmp_path / f'{flag}-{name}.jsonl'
            out, _ = nplm_command(*arguments, f'--{flag}={value}', f'--output={output}')
            kept[flag] = [row['id'] for row in rows_of(output)]
            assert f'{output}: {len(kept[flag])} of 5 documents' in out
        assert kept['below'] == [i for i, p in perplexities.items() if p < bound] and len(kept['below']) == 2
        assert kept['above'] == [i for i, p in perplexities.items() if p >= bound]


def test_a_share_is_of_the_documents_of_all_files(folders, docs, tmp_path, nplm_command):
    texts = ('dog', 'i like', 'i like dog', 'like', 'i hate dog')
    (tmp_path / 'more.jsonl').write_text(''.join(f'{{"text": "{text}"}}\n' for text in texts))
    output = tmp_path / 'kept'
    arguments = ['filter', folders / 'network', '--text', docs, tmp_path / 'more.jsonl', '--column=p']
    results = json.loads(nplm_command(*arguments, '--below=40%', f'--output={output}', '--json')[0][0])
    assert [written['documents'] for written in results['files']] == [5, 5] and results['empty'] == 3
    nplm_command(*arguments, f'--output={tmp_path / "all"}')
    perplexities = [p for name in ('docs', 'more') for p in perplexities_of(tmp_path / 'all' / f'{name}.jsonl')]
    assert results['bounds'] == {'below': sorted(perplexities)[4]}
    assert sum(written['kept'] for written in results['files']) == 4


@pytest.mark.parametrize('change', [lambda text: '{"text": "another one"}\n', lambda text: text.replace('dog', 'cat')])
def test_a_file_that_changes_between_its_two_readings_is_refused(change, folders, docs, tmp_path, monkeypatch):
    scorer = selection.Scorer(load_models([str(folders / 'counts')]))
    half = selection.Bound(0.5, True)
    job = selection.Job([docs], {docs: tmp_path / 'kept.jsonl'}, documents.Layout(), scorer, below=half)
    score = selection.Job._score

    def score_and_change(*arguments):
        yield from score(*arguments)
        docs.write_text(change(docs.read_text()))

    monkeypatch.setattr(selection.Job, '_score', score_and_change)
    with refuses('docs.jsonl'):
        job.run()
    assert not (tmp_path / 'kept.jsonl').exists()


# --- the distribution --------------------------------------------------------------------------------------------


def test_without_a_bound_the_distribution_is_printed(folders, docs, tmp_path, nplm_command):
    figure = tmp_path / 'histogram.png'
    arguments = ('filter', folders / 'counts', '--text', docs)
    results = json.loads(nplm_command(*arguments, '--json')[0][0])
    assert (results['documents'], results['empty'], results['unknown']) == (5, 3, 2)
    assert sum(row['documents'] for row in results['histogram']) == 5
    assert results['lowest'][0]['perplexity'] <= results['deciles']['50%'] <= results['highest'][2]['perplexity']
    assert [row['text'] for row in results['highest'] if row['perplexity'] is None] == [*UNKNOWN]
    out, _ = nplm_command(*arguments, f'--figure={figure}')
    assert re.findall(r'\b(\d+) documents', out[0]) == ['5', '3']
    assert out[-1].endswith(results['highest'][-1]['text']) and figure.read_bytes().startswith(b'\x89PNG')


def test_bins_cover_all_numbers():
    for numbers in ([1.5], [0.5, 7.0, 10.0], [3.0, 1e300], [20.0, 50.0, math.inf], [math.inf]):
        found = distribution.Distribution()
        found.add(np.array(numbers), [''] * len(numbers))
        rows = found.results()['histogram']
        assert sum(row['documents'] for row in rows) == len(numbers) and len(rows) <= len(numbers)
        assert all(row['from'] < row['below'] for row in rows if row['from'] < math.inf)


def test_a_quantile_leaves_its_share_below_it():
    numbers = np.arange(1.0, 11.0)
    assert [(numbers < distribution.quantile(numbers, share)).sum() for share in (0.1, 0.3, 0.7)] == [1, 3, 7]
    assert distribution.quantile(np.array([4.0]), 0.5) == 4 and distribution.quantile(np.zeros(0), 0.5) == math.inf


# --- formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('suffix', ('', '.gz', '.zst'))
def test_rows_of_json_stay_as_they_are(suffix, folders, docs, tmp_path, nplm_command):
    data, lines = docs.read_bytes(), docs.read_text().splitlines()
    zstd = pytest.importorskip('backports.zstd') if suffix == '.zst' else None
    compress, decompress = (zstd.compress, zstd.decompress) if zstd else (gzip.compress, gzip.decompress)
    file, output = tmp_path / f'in.jsonl{suffix}', tmp_path / f'out.jsonl{suffix}'
    file.write_bytes(compress(data) if suffix else data)
    nplm_command('filter', folders / 'counts', '--text', file, '--above=1', f'--output={output}')
    written = output.read_bytes()
    expected = [line for line, text in zip(lines, TEXTS) if text.strip()]
    assert (decompress(written) if suffix else written).decode().splitlines() == expected


def test_a_table_keeps_its_columns_types_and_metadata(folders, tmp_path, monkeypatch, nplm_command):
    pyarrow, _ = pytest.importorskip('pyarrow'), pytest.importorskip('pyarrow.parquet')
    monkeypatch.setattr(documents.formats, '_ROWS', 2)
    monkeypatch.setattr(documents, '_GROUP_ROWS', 2)
    columns = {'body': [*TEXTS, None], 'meta': [{'tags': [str(i)]} for i in range(8)], 'n': list(range(8))}
    schema = pyarrow.schema(
        [('body', pyarrow.large_string()), ('meta', pyarrow.struct([('tags', pyarrow.list_(pyarrow.string()))]))]
        + [('n', pyarrow.int16())],
        metadata={'source': 'web', 'huggingface': '{"info": {}}'},
    )
    pyarrow.parquet.write_table(pyarrow.table(columns, schema), tmp_path / 'in.parquet')
    table = pyarrow.parquet.read_table(tmp_path / 'in.parquet')
    arguments = ['filter', folders / 'counts', '--text', tmp_path / 'in.parquet', '--field=body']
    nplm_command(*arguments, '--above=1', f'--output={tmp_path / "out.parquet"}')
    found, has_words = (
        pyarrow.parquet.read_table(tmp_path / 'out.parquet'),
        [bool((t or '').strip()) for t in columns['body']],
    )
    assert found.equals(table.filter(pyarrow.array(has_words)), check_metadata=True)
    nplm_command(*arguments, '--column=p', f'--output={tmp_path / "scored.parquet"}')
    scored_table = pyarrow.parquet.read_table(tmp_path / 'scored.parquet')
    assert scored_table.select(schema.names).equals(found) and scored_table.schema.field('p').type == pyarrow.float64()
    assert scored_table.schema.metadata == {b'source': b'web'}
    nplm_command(*arguments, '--below=0.5', f'--output={tmp_path / "none.parquet"}')
    assert pyarrow.parquet.read_table(tmp_path / 'none.parquet').equals(table.slice(0, 0), check_metadata=True)


def test_a_table_of_which_little_is_kept_waits_for_a_full_group_in_little_memory(tmp_path, monkeypatch):
    pyarrow, _ = pytest.importorskip('pyarrow'), pytest.importorskip('pyarrow.parquet')
    monkeypatch.setattr(documents, '_GROUP_ROWS', 3)
    rows = pyarrow.record_batch({'text': list('abcd')})
    with documents.write(tmp_path / 'out.parquet', documents.Layout()) as write:
        for i in range(100):
            is_kept = np.array([i % 20 == 0, False, False, False])
            write(documents.Batch(list('abcd'), [rows], 0), is_kept, np.ones(4))
            assert len(write.__self__._tables) <= 2
    metadata = pyarrow.parquet.ParquetFile(tmp_path / 'out.parquet').metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3, 2]


@pytest.mark.parametrize('kind', ('lines', 'paragraphs'))
def test_a_document_of_a_text_is_a_line_or_a_paragraph(kind, folders, tmp_path, nplm_command):
    paragraphs = ['the cat is walking\r\nin the room', 'zebra zebra', 'a dog', 'the cat\nthe dog']
    (tmp_path / 'in.txt').write_bytes(('\ufeff' + '\n\n\n'.join(paragraphs)).encode())
    output, model = tmp_path / 'out.txt', folders / 'counts'
    out, _ = nplm_command(
        'filter', model, '--text', tmp_path / 'in.txt', f'--documents={kind}', '--above=1', f'--output={output}'
    )
    expected = ''.join(f'{text}\n\n' for text in paragraphs)
    expected = expected if kind == 'paragraphs' else expected.replace('\n\n', '\n')
    assert output.read_bytes().decode() == expected
    assert out[0].startswith('4 documents' if kind == 'paragraphs' else '6 documents')


def test_each_of_several_files_has_its_name_in_the_folder(folders, docs, tmp_path, nplm_command):
    (tmp_path / 'b.txt').write_text('the cat\n')
    output = tmp_path / 'kept'
    model = folders / 'counts'
    nplm_command('filter', model, '--text', docs, tmp_path / 'b.txt', '--above=1', f'--output={output}')
    assert sorted(file.name for file in output.iterdir()) == ['b.txt', 'docs.jsonl']
    assert (output / 'b.txt').read_text() == 'the cat\n' and len(rows_of(output / 'docs.jsonl')) == 5


@pytest.mark.parametrize('bound', ('--above=1', '--below=60%', '--column=p'))
def test_the_same_command_goes_on_with_the_files_that_are_missing(bound, folders, docs, tmp_path, nplm_command, lines):
    for name in ('b', 'c'):
        (tmp_path / f'{name}.jsonl').write_text(f'{{"text": "the {name}"}}\n{{"text": "the cat"}}\n')
    output, files = tmp_path / 'kept', [docs, tmp_path / 'b.jsonl', tmp_path / 'c.jsonl']
    command = ['filter', str(folders / 'counts'), '--text', *files, bound, f'--output={output}', '--json']
    nplm_command(*command)
    before = {file.name: file.read_bytes() for file in output.iterdir()}
    (output / 'b.jsonl').unlink()
    times = {file.name: file.stat().st_mtime_ns for file in output.iterdir()}
    out, errors = nplm_command(*command)
    assert any(re.findall(r'\d+', line) == ['2', '3'] for line in errors)
    assert [written['file'] for written in json.loads(out[0])['files']] == [str(files[1])]
    assert {file.name: file.read_bytes() for file in output.iterdir()} == before
    assert {name: (output / name).stat().st_mtime_ns for name in times} == times
    with pytest.raises(SystemExit):
        cli.main([*map(str, command)])  # all documents exist, perhaps with another bound
    (line,) = lines()[1]
    assert line.startswith(f"--output='{output}/docs.jsonl': ") and '--overwrite' in line
    out, _ = nplm_command(*command, '--overwrite')
    assert len(json.loads(out[0])['files']) == 3
    assert {file.name: file.read_bytes() for file in output.iterdir()} == before


def test_a_file_is_not_taken_for_its_own_output(folders, docs, tmp_path, lines):
    (tmp_path / 'more').mkdir()
    (tmp_path / 'more' / 'b.jsonl').write_text('{"text": "the cat"}\n')
    files = [str(docs), str(tmp_path / 'more' / 'b.jsonl')]
    with pytest.raises(SystemExit):
        cli.main(['filter', str(folders / 'counts'), '--text', *files, '--above=1', f'--output={tmp_path}'])
    (line,) = lines()[1]
    assert line.startswith(f"--output='{docs}': ")


# --- bad input ---------------------------------------------------------------------------------------------------

BELOW = ['--below=9', '--output={dir}/out.jsonl']
BAD = {
    'no number': (['--below=x', BELOW[1]], "--below='x': "),
    'no share': (['--above=100%', BELOW[1]], "--above='100%': "),
    'not finite': (['--below=inf', BELOW[1]], "--below='inf': "),
    'no order': ([*BELOW, '--above=9'], "--above='9': "),
    'no output': (['--below=9'], "--below='9': "),
    'no reason for an output': ([BELOW[1]], '--output='),
    'no output for a column': (['--column=p'], "--column='p': "),
    'a figure of what is kept': ([*BELOW, '--figure=a.png'], "--figure='a.png': "),
    'a figure in no folder': (['--figure={dir}/no/x.png'], '--figure='),
    'a column that is no text': ([*BELOW, '--column=\udcff'], "--column='\\udcff': "),
    'its own output': (['--below=9', '--output={dir}/docs.jsonl', '--overwrite'], "docs.jsonl': "),
    'another format': (['--below=9', '--output={dir}/out.parquet'], "/out.parquet': "),
    'no folder': (['--below=9', '--output={dir}/no/out.jsonl'], '--output='),
    'a missing column': (['--field=body'], 'docs.jsonl:1: '),
    'a column that is there': ([*BELOW, '--column=price'], 'docs.jsonl:1: '),
    'no model': (['RUN={dir}/no'], "/no': "),
    'a file twice': (['{dir}/docs.jsonl', '--below=9', '--output={dir}/kept'], "docs.jsonl': "),
    'a file twice, without an output': (['{dir}/docs.jsonl'], "docs.jsonl': "),
    'paragraphs of rows': (['--documents=paragraphs'], "--documents='paragraphs': "),
    'no file': (['{dir}/no.jsonl'], '/no.jsonl'),
    'arrow': (['{dir}/a.arrow'], "/a.arrow': "),
    'a column of a text': (['{dir}/a.txt', '--column=p', '--output={dir}/kept'], "--column='p': "),
    'a line that is no text': (['{dir}/bad.txt'], 'bad.txt:2: '),
    'a damaged line': (['{dir}/bad.jsonl'], 'bad.jsonl:2: '),
    'a damaged table': (['{dir}/bad.parquet'], 'bad.parquet: '),
    'no marks': (['RUN={other}', '--end'], '--end=True: '),
}  # fmt: skip


@pytest.mark.parametrize('case', BAD)
def test_bad_input_is_one_line_and_nothing_is_written(case, folders, docs, tmp_path, lines):
    flags, message = BAD[case]
    if case == 'a damaged table':
        pytest.importorskip('pyarrow')
    (tmp_path / 'a.arrow').touch()
    (tmp_path / 'a.txt').write_text('a\n')
    (tmp_path / 'bad.txt').write_bytes(b'a\nb\xff\n')
    (tmp_path / 'bad.jsonl').write_text('{"text": "a"}\n{"text":\n')
    (tmp_path / 'bad.parquet').write_text('PAR1')
    before = sorted(tmp_path.iterdir())
    given = [flag.format(dir=tmp_path, other=folders / 'other') for flag in flags]
    with pytest.raises(SystemExit) as stop:
        runs = [flag.removeprefix('RUN=') for flag in given if flag.startswith('RUN=')] or [str(folders / 'counts')]
        options = [flag for flag in given if flag.startswith('-')]
        files = [flag for flag in given if not flag.startswith(('-', 'RUN='))]
        cli.main(['filter', *runs, '--text', str(docs), *files, *options])
    _, errors = lines()
    assert stop.value.code == 2 and len(errors) == 1 and message in errors[0]
    left = [file for file in sorted(tmp_path.iterdir()) if file not in before]
    assert all(file.is_dir() and not list(file.iterdir()) for file in left)


@pytest.mark.parametrize('name', ('a.arrow', 'a.txt.bz2', 'a.jsonl.xz', 'a.parquet.gz'))
def test_a_format_that_is_not_written_is_refused(name):
    with refuses('--output'):
        documents.kind_of(pathlib.Path(name), '--output')


def test_a_column_of_files_without_columns_is_refused(folders, tmp_path):
    (tmp_path / 'a.txt').write_text('a\n')
    with refuses('--field'):
        words = [str(folders / 'counts'), '--text', str(tmp_path / 'a.txt'), '--field=body']
        all_commands()['filter'].run('filter', words)


def test_a_file_without_documents_is_refused(folders, tmp_path):
    (tmp_path / 'a.txt').touch()
    with refuses('--text'):
        all_commands()['filter'].run('filter', [str(folders / 'counts'), '--text', str(tmp_path / 'a.txt')])


@pytest.mark.parametrize('event', ('damage', 'Ctrl-C', 'SIGTERM'))
def test_what_stops_in_the_middle_leaves_the_other_files(event, folders, docs, tmp_path, monkeypatch, lines):
    monkeypatch.setattr(documents, '_CHARACTERS', 40)
    (tmp_path / 'second.jsonl').write_text('{"text": "the cat"}\n' * 20 + '{' * (event == 'damage'))
    score, calls = selection.Scorer.score, []

    def interrupt(self, texts):
        calls.append(texts)
        if event != 'damage' and 'the cat' == texts[0] and len(calls) > 6:
            if event == 'Ctrl-C':
                raise KeyboardInterrupt  # SIGINT is ignored in background processes of a shell
            signal.raise_signal(signal.SIGTERM)
        return score(self, texts)

    monkeypatch.setattr(selection.Scorer, 'score', interrupt)
    arguments = ['filter', str(folders / 'counts'), '--text', str(docs), str(tmp_path / 'second.jsonl'), '--above=1']
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments, f'--output={tmp_path / "kept"}'])
    assert stop.value.code == {'damage': 2, 'Ctrl-C': 130, 'SIGTERM': 143}[event] and len(lines()[1]) == 1
    assert os.listdir(tmp_path / 'kept') == ['docs.jsonl'] and len(rows_of(tmp_path / 'kept' / 'docs.jsonl')) == 5


def test_filtering_warns_of_unknown_words(folders, tmp_path, nplm_command):
    def call(text):
        (tmp_path / 'text').write_text(f'{text}\n')
        return nplm_command('filter', folders / 'counts', '--text', tmp_path / 'text')[1]

    check_unknown_words(call)
