"""Tests of the audit of committed results."""

import json

import pytest

from experiments import audit, origins, results

KNOWN = frozenset({'a1b2c3d4e5f6' + '0' * 28})


@pytest.mark.parametrize(
    'recorded, faults',
    [
        ({'commit': 'a1b2c3d4e5f6', 'versions': {'jaxlib': '0.10.1'}}, []),
        ({'rows': [{'commit': 'a1b2c3d4e5f6', 'versions': {'jaxlib': '0.10.1'}}]}, []),
        ({'commit': 'a1b2c3d4e5f6-dirty', 'versions': {'jaxlib': '0.10.1'}}, ['local changes']),
        ({'commit': 'f00', 'versions': {'jaxlib': '0.10.2'}}, ['excluded jaxlib', 'unknown commit']),
        ({'commit': 'a1b2c3d4e5f6'}, ['no versions']),
        ({'perplexity': 1.0}, ['no versions']),
    ],
)
def test_a_result_has_the_faults_of_what_it_records(recorded, faults, tmp_path):
    path = tmp_path / 'study' / 'results' / 'seeds' / 'row.json'
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(recorded))
    assert audit.faults_of(audit.read_all(tmp_path)[path], KNOWN) == faults


def test_a_note_names_the_results_that_are_not_to_be_trusted(tmp_path):
    def write(name, jaxlib, commit='a1b2c3d4e5f6', load=0.5):
        (tmp_path / name).write_text(json.dumps({'commit': commit, 'versions': {'jaxlib': jaxlib}, 'load': load}))
        return tmp_path / name

    def note(*paths):
        return origins.note({path: json.loads(path.read_text()) for path in paths})

    good, bad = write('good.json', '0.10.1'), write('bad.json', '0.10.2')
    modified = write('modified.json', '0.10.1', 'a1b2c3d4e5f6-dirty')
    assert note(good) == note() == ''
    assert '`bad`' in note(good, bad, modified) and '`modified`' in note(good, bad, modified)
    busy = write('busy.json', '0.10.1', load=7.2)
    assert note(good, busy).endswith('`busy` was timed while other programs ran.')
    assert '`good`' not in note(good, bad, modified, busy)
    assert note(bad, bad, write('worse.json', '0.10.2')).startswith(
        'Note: All results were measured with jaxlib 0.10.2'
    )


def test_the_files_of_a_table_are_those_loaded_while_it_is_made(tmp_path):
    (tmp_path / 'a.json').write_text('{}')
    with results.loaded() as outer:
        results.read(tmp_path, 'a')
        with results.loaded() as inner:
            results.load(tmp_path / 'a.json')
    assert inner == outer == {tmp_path / 'a.json': {}}
