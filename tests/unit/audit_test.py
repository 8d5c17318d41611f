"""Tests the audit of committed results."""

import json
import pathlib
import re
import subprocess

import pytest
from helpers import refuses

from configs import presets
from experiments import audit, origins, points, results, runs
from experiments.paper.section5 import paired
from experiments.sources import of_runs
from nplm_jax.runs.command_line import load_config

KNOWN = frozenset({'a1b2c3d4e5f6' + '0' * 28})
GOOD = {'commit': 'a1b2c3d4e5f6', 'versions': {'jaxlib': '0.10.1'}, 'command': 'python launch.py'}

BAD = {**GOOD, 'versions': {'jaxlib': '0.10.2'}}
UNNAMED = {key: GOOD[key] for key in ('commit', 'versions')}  # without a command


@pytest.mark.parametrize(
    'recorded, faults',
    [
        (GOOD, []),
        ({'rows': [GOOD]}, []),
        ({'commit': 'a1b2c3d4e5f6-dirty', 'versions': {'jaxlib': '0.10.1'}}, ['local changes']),
        ({'commit': 'f00', 'versions': {'jaxlib': '0.10.2'}}, ['excluded jaxlib', 'unknown commit']),
        ({'commit': 'a1b2c3d4e5f6'}, ['no versions']),
        ({'perplexity': 1.0}, ['no versions']),
        ({**GOOD, 'trained': of_runs([{**GOOD, 'versions': {}}])}, ['no versions']),
        ({'models': {'a': {**GOOD, 'trained': of_runs([UNNAMED])}}}, ['unknown settings']),
        ({**GOOD, 'origins': [BAD, GOOD]}, ['excluded jaxlib']),
        ({**GOOD, 'trained': of_runs([{**GOOD, 'origins': [BAD, GOOD]}])}, ['excluded jaxlib']),
        ({**GOOD, 'trained': of_runs([{**GOOD, 'trained': of_runs([BAD])}])}, ['excluded jaxlib']),
    ],
)
def test_a_result_has_the_faults_of_what_it_records(recorded, faults, tmp_path):
    path = tmp_path / 'study' / 'results' / 'seeds' / 'row.json'
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(recorded))
    assert audit.faults_of(audit.read_all(tmp_path)[path], KNOWN) == faults


def test_a_shallow_clone_does_not_make_commits_unknown(tmp_path, capsys):
    def git(folder, *words):
        subprocess.run(['git', '-c', 'user.name=x', '-c', 'user.email=x', *words], cwd=folder, check=True)

    (tmp_path / 'whole').mkdir()
    git(tmp_path / 'whole', 'init', '-q')
    for _ in range(2):
        git(tmp_path / 'whole', 'commit', '-q', '--allow-empty', '-m', 'x')
    git(tmp_path, 'clone', '-q', '--depth=1', f'file://{tmp_path}/whole', 'shallow')
    known = audit.known_commits(tmp_path / 'whole')
    assert len(known) == 2 and audit.faults_of(origins.of(GOOD), known) == ['unknown commit']
    assert capsys.readouterr().err == ''
    known = audit.known_commits(tmp_path / 'shallow')
    assert known is None and audit.faults_of(origins.of(GOOD), known) == []
    assert capsys.readouterr().err.count('\n') == 1


def test_a_list_of_results_to_repeat_has_their_versions_and_faults(monkeypatch):
    bad = origins.of({**GOOD, 'versions': {'jaxlib': '0.10.2'}, 'load': 7.2})
    results_of = {audit.HERE / 'paper' / 'table1' / name: origin for name, origin in {'a': bad, 'b': bad}.items()}
    monkeypatch.setattr(audit, 'read_all', lambda: results_of)
    monkeypatch.setattr(audit, 'known_commits', lambda: KNOWN)
    lines = audit.make(show_files=True).splitlines()
    assert [cell.strip() for cell in lines[-1].strip('|').split('|')] == [
        'paper/table1/b', '0.10.2', 'a1b2c3d4e5f6', 'excluded jaxlib'
    ]  # fmt: skip


@pytest.mark.parametrize(
    'change,is_earlier',
    [
        ({}, False),
        ({'model.h': 50}, True),  # another value
        ({'model.h': None}, True),  # a key that had its default
        ({'model.renamed': 1}, True),
        ({'train.patience': 2}, False),  # a default that was recorded
    ],
)
def test_a_result_of_a_config_that_has_changed_is_to_be_repeated(change, is_earlier):
    settings = results.changed_keys(load_config('configs/brown.py:mlp9')) | {'train.batch_size': 7} | change
    command = (
        'python launch.py --config=configs/brown.py:mlp9 --config.train.batch_size=7 --config.seed=2 --workdir=runs/x'
    )
    settings = {key: value for key, value in settings.items() if value is not None}
    recorded = {**GOOD, 'command': command, 'settings': settings}
    assert audit.faults_of(origins.of(recorded), KNOWN) == (['earlier settings'] if is_earlier else [])
    note = origins.note({pathlib.Path('row.json'): recorded})
    assert note == ('Note: The result was trained with earlier settings or keys.' if is_earlier else '')
    gone = origins.of({**recorded, 'command': command.replace('mlp9', 'no_such_preset')})
    assert gone.is_earlier and not origins.of({**recorded, 'command': ''}).is_earlier
    mixed = {**GOOD, 'trained': of_runs([{**GOOD, 'name': 'a'}, recorded])}
    assert origins.of(mixed).is_earlier == is_earlier


@pytest.mark.parametrize(
    'words',
    [
        '--config=configs/brown.py:one_minute --config.train.batch_size=64 --config.train.affixes=false',
        '--config configs/brown.py:one_minute --config.train.batch_size 64 --noconfig.train.affixes --config.seed 2',
        '-config=brown:one_minute -config.train.batch_size=64 -noconfig.train.affixes -config.seed=2',
        '--config=/clone/configs/brown.py:one_minute --config.train.batch_size 64 --config.train.affixes=False',
    ],
)
def test_flags_are_compared_in_every_spelling(words):
    preset = results.changed_keys(load_config('configs/brown.py:one_minute'))
    selected = {key: value for key, value in preset.items() if key != 'train.affixes'} | {'train.batch_size': 64}
    recorded = {**GOOD, 'command': f'python launch.py {words} --workdir=runs/x'}
    assert not origins.of({**recorded, 'settings': selected}).is_earlier
    assert origins.of({**recorded, 'settings': preset | {'train.batch_size': 64}}).is_earlier
    assert origins.of({**recorded, 'settings': selected | {'train.batch_size': 512}}).is_earlier
    assert origins.of({**recorded, 'settings': {}}).is_earlier


@pytest.mark.parametrize('following', ['', ' --config.seed=2', ' -config.seed=2'])
def test_a_switch_without_a_value_is_true(following):
    recorded = {**GOOD, 'command': f'python launch.py --config=brown:mlp9 --config.model.direct{following}'}
    settings = results.changed_keys(load_config('configs/brown.py:mlp9'))
    assert origins.of({**recorded, 'settings': settings}).is_earlier
    assert not origins.of({**recorded, 'settings': settings | {'model.direct': True}}).is_earlier


def test_of_a_result_without_settings_the_family_is_compared():
    recorded = {**GOOD, 'command': 'python launch.py --config=configs/brown.py:mlp9', 'family': 'nplm'}
    assert not origins.of(recorded).is_earlier
    assert origins.of({**recorded, 'family': 'lstm'}).is_earlier
    assert origins.of({**GOOD, 'trained': of_runs([{**recorded, 'family': 'lstm'}])}).is_earlier


def test_what_minutes_chose_is_compared_with_what_it_would_choose_today():
    keys = {**presets.network(160, 2.1, 969_369), 'train.patience': 1, 'train.evaluate_every': 77, 'model.dropout': 0.5}
    config = {}
    for key, value in keys.items():
        section, name = key.split('.')
        config.setdefault(section, {})[name] = value
    command = 'python launch.py --config=configs/text.py{} --minutes=2 --config.model.dropout=0.5'
    recorded = {**GOOD, 'updates': 5, 'epochs': 2.1, 'words': {'train': 969_369}, 'command': command.format('')}
    assert not origins.of({**recorded, 'config': config}).is_earlier
    assert origins.of({**recorded, 'config': {**config, 'train': config['train'] | {'calibrate': False}}}).is_earlier
    other = {**config, 'model': config['model'] | {'family': 'mogrifier'}}
    assert origins.of({**recorded, 'config': other}).is_earlier
    assert not origins.of({**recorded, 'config': other, 'command': command.format(':mogrifier')}).is_earlier
    for family, is_earlier in (('modified_kneser_ney', False), ('kneser_ney', True)):
        assert origins.of({**GOOD, 'command': command.format(''), 'family': family}).is_earlier == is_earlier


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
    (unknown := tmp_path / 'unknown.json').write_text(json.dumps({'perplexity': {'test': 2.0}}))
    assert note(good, unknown) == 'Note: `unknown` was recorded without complete versions.'
    assert note(bad, bad, write('worse.json', '0.10.2')).startswith(
        'Note: All results were measured with jaxlib 0.10.2'
    )


def test_a_note_distinguishes_results_with_the_same_name():
    paths = [pathlib.Path(folder) / 'seeds' / 'row.json' for folder in ('brown', 'wikitext2')]
    assert origins.note(dict(zip(paths, (GOOD, BAD)))).startswith('Note: `wikitext2/seeds/row` was measured')


def test_a_note_covers_the_runs_on_which_a_result_depends():
    busy = {**GOOD, 'name': 'member', 'load': 7.2}
    mixed, good = {**GOOD, 'trained': of_runs([busy])}, pathlib.Path('good.json')
    assert origins.note({pathlib.Path('mixed.json'): mixed, good: GOOD}) == (
        'Note: `mixed` was timed while other programs ran.'
    )
    mixed = {**GOOD, 'trained': of_runs([GOOD, UNNAMED])}
    assert origins.note({pathlib.Path('mixed.json'): mixed, good: GOOD}) == (
        'Note: `mixed` was made from models whose settings are not recorded.'
    )


def test_a_resumed_record_keeps_the_versions_of_its_earlier_runs(tmp_path, monkeypatch):
    for seed, facts in enumerate((BAD, GOOD, GOOD)):
        monkeypatch.setattr(paired, 'of_module', lambda _, facts=facts: facts)
        record = paired.Record(tmp_path / 'row.json', 'study')
        record.add('none', min(seed, 1), lambda: {'valid': 2.0, 'test': 3.0, 'seconds': 1})
        record.write({})
    assert origins.of(json.loads((tmp_path / 'row.json').read_text())).jaxlib == {'0.10.1', '0.10.2'}


def test_the_files_of_a_table_are_those_loaded_while_it_is_made(tmp_path):
    (tmp_path / 'a.json').write_text('{}')
    with results.loaded() as outer:
        results.read(tmp_path, 'a')
        with results.loaded() as inner:
            results.load(tmp_path / 'a.json')
    assert inner == outer == {tmp_path / 'a.json': {}}


def test_a_pattern_that_matches_no_result_is_refused(monkeypatch, tmp_path):
    made = points.Training(tmp_path / 'mlp9.json', 'brown-mlp9')
    monkeypatch.setattr(points, 'STUDIES', {'table1': lambda: iter([made])})
    assert runs.due(['table1'], 'mlp*', repeat=False) == [made]
    with refuses('--only'):
        runs.due(['table1'], 'mpl*', repeat=False)


def test_the_list_of_studies_names_the_versions_that_produced_their_results():
    page = (audit.HERE / 'README.md').read_text()
    listed = {name: line for line in page.splitlines() for name in re.findall(r'^\| \[(\w+)\]', line)}
    for path, origin in audit.read_all().items():
        assert all(release in listed[results.study_of(path)].split('|')[-2] for release in origin.jaxlib), path
