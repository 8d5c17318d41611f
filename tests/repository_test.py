"""Workflows, templates, the container and the package's metadata agree with the code and with each other."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml
from helpers import ROOT
from packaging.specifiers import SpecifierSet

PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
WORKFLOWS = sorted((ROOT / '.github' / 'workflows').glob('*.yml'))
CI = (ROOT / '.ci' / 'run').read_text()
(PARTS,) = (line.split() for line in re.findall(r'^all=\((.*)\)$', CI, re.MULTILINE))
ALLOWED = [f'3.{minor}' for minor in range(30) if f'3.{minor}' in SpecifierSet(PROJECT['requires-python'])]


def read_yaml(path):
    return yaml.safe_load((ROOT / path).read_text())


def jobs(name):
    return read_yaml(f'.github/workflows/{name}.yml')['jobs']


def steps_of(job):
    return {step.get('uses', '').partition('@')[0] or step['run']: step for step in job['steps']}


def test_every_allowed_python_is_tested_on_linux_and_macos():
    matrix = jobs('checks')['tests']['strategy']['matrix']
    assert matrix['python'] == ALLOWED and len(ALLOWED) == 3
    assert matrix['os'] == ['ubuntu-latest', 'macos-latest']
    named = {c.rpartition(' ')[2] for c in PROJECT['classifiers'] if re.search(r'Python :: \d\.\d', c)}
    assert named == set(ALLOWED)


def test_a_python_that_is_not_allowed_yet_may_fail():
    job = jobs('checks')['future']
    asked = steps_of(job)['actions/setup-python']['with']['python-version'].split()
    assert asked[0] not in ALLOWED and asked[-1] in ALLOWED and job['continue-on-error'] is True
    assert f'python{asked[0]} -m venv' in CI
    assert not [name for name, other in jobs('checks').items() if 'continue-on-error' in other and name != 'future']


def test_every_part_of_ci_is_run_by_a_job_but_the_newest_jax_which_the_tests_have():
    checks = jobs('checks')
    ours = {word for job in checks.values() for s in steps_of(job) if s[0] == '.' for word in shlex.split(s)[1:]}
    run = (ours - {'$PART'}) | {*checks['parts']['strategy']['matrix']['part']}
    assert '$PART' in ours and {*PARTS} - run == {'newest'} and run <= {*PARTS}
    assert all(f'\n{name}() {{' in CI for name in PARTS)


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_pinned_actions_few_rights_and_an_end(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow['permissions'] == {} and 'concurrency' in workflow
    for name, job in workflow['jobs'].items():
        assert job['timeout-minutes'] <= 90
        rights = {right for right, level in job['permissions'].items() if level != 'read'}
        assert rights == ({'id-token', 'attestations'} if name == 'publish' else set())
        for step in job['steps']:
            if step.get('uses', '').startswith('actions/checkout@'):
                assert step['with']['persist-credentials'] is False
            assert '${{' not in step.get('run', ''), 'an expression in a script: pass it by env'
    uses = re.findall(r'uses: (.*)', path.read_text())
    assert uses and all(re.fullmatch(r'[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+', use) for use in uses)


def test_only_a_tag_publishes_what_another_job_built_and_checked():
    workflow = read_yaml('.github/workflows/release.yml')
    assert workflow[True] == {'push': {'tags': ['v*']}}  # YAML 1.1 reads `on` as true
    build, publish = (workflow['jobs'][name] for name in ('build', 'publish'))
    scripts = ' '.join(step.get('run', '') for step in build['steps'])
    assert all(words in scripts for words in ('python -m build', 'twine check --strict', 'GITHUB_REF_NAME'))
    assert publish['needs'] == 'build' and publish['environment'] and not any('run' in s for s in publish['steps'])
    assert (
        not {'password', 'user', 'repository-url'}
        & steps_of(publish)['pypa/gh-action-pypi-publish'].get('with', {}).keys()
    )
    uploaded, downloaded = (
        steps_of(job)[f'actions/{verb}-artifact']['with'] for job, verb in ((build, 'upload'), (publish, 'download'))
    )
    assert (uploaded['name'], uploaded['path']) == (downloaded['name'], downloaded['path'])


def test_files_that_a_cache_is_keyed_by_exist():
    for job in jobs('checks').values():
        for pattern in steps_of(job)['actions/setup-python']['with']['cache-dependency-path'].split():
            assert list(ROOT.glob(pattern)), pattern


@pytest.mark.parametrize('name', ['bug', 'feature'])
def test_an_issue_form_asks_for_something_and_each_question_has_a_name_of_its_own(name):
    form = read_yaml(f'.github/ISSUE_TEMPLATE/{name}.yml')
    asked = [part for part in form['body'] if part['type'] != 'markdown']
    assert {'name', 'description', 'body'} <= form.keys()
    assert len({part['id'] for part in asked}) == len(asked) and all(part['attributes']['label'] for part in asked)
    assert any(part['validations']['required'] for part in asked)


def test_the_form_of_a_bug_asks_for_what_this_code_prints():
    (versions,) = (part for part in read_yaml('.github/ISSUE_TEMPLATE/bug.yml')['body'] if part.get('id') == 'versions')
    _, _, code = shlex.split(versions['attributes']['placeholder'])
    printed = []
    exec(code, {'print': printed.append})
    assert {'commit', 'versions', 'device'} <= printed[0].keys()


def test_a_pull_request_and_a_commit_are_checked_by_what_ci_runs():
    style = CI.partition('\nstyle() {')[2].partition('\n}')[0]
    (command,) = re.findall('`(ruff .*)`', (ROOT / '.github' / 'pull_request_template.md').read_text())
    assert all(f'    {part}\n' in f'{style}\n' for part in command.split(' && '))
    (local,) = read_yaml('.pre-commit-config.yaml')['repos']
    hooks = [hook['entry'].removesuffix(' --force-exclude') for hook in local['hooks']]
    assert [part.replace(' --check .', '').removesuffix(' .') for part in command.split(' && ')] == hooks


def test_the_container_builds_the_wheel_from_what_it_copies_and_runs_it_as_no_root(tmp_path):
    text = (ROOT / 'Dockerfile').read_text()
    copied = {name for line in re.findall(r'^COPY (.*)$', text, re.MULTILINE) for name in line.split()[:-1]}
    sent = {name[1:] for name in (ROOT / '.dockerignore').read_text().splitlines() if name.startswith('!')}
    assert copied == sent
    for name in copied:
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / name)
    (build,) = re.findall(r'^RUN (pip wheel .*) --wheel-dir /wheels \.$', text, re.MULTILINE)
    pip = [sys.executable, '-m', *build.split(), '--quiet', '--no-build-isolation', '--wheel-dir', tmp_path / 'wheels']
    subprocess.run([*pip, tmp_path], check=True, timeout=300)
    (wheel,) = (tmp_path / 'wheels').glob('*.whl')
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'nplm_jax').rglob('*.py')}
    assert modules | {'nplm_jax/configs/brown.py', 'nplm_jax/py.typed'} <= {*zipfile.ZipFile(wheel).namelist()}
    assert {*re.findall(r'^FROM python:(\S+)-slim', text, re.MULTILINE)} == {ALLOWED[-1]}
    assert int(*re.findall(r'^USER (\d+)$', text, re.MULTILINE)) > 0
    (entry,) = json.loads(*re.findall(r'^ENTRYPOINT (.*)$', text, re.MULTILINE))
    assert entry in PROJECT['scripts']


def test_other_machines_set_up_as_the_documentation_says():
    container = json.loads((ROOT / '.devcontainer' / 'devcontainer.json').read_text())
    assert container['image'].endswith(f':{ALLOWED[-1]}')
    assert '-r requirements-dev.txt -e' in container['postCreateCommand']
    site = read_yaml('.readthedocs.yaml')
    assert site['build']['tools']['python'] == ALLOWED[-1] and (ROOT / site['sphinx']['configuration']).exists()
    (command,) = site['build']['jobs']['build']['html']
    assert command.rpartition(' ')[0] in CI


def test_the_metadata_name_no_address_that_the_citation_lacks():
    citation = (ROOT / 'CITATION.cff').read_text()
    assert all(f': {url}\n' in citation for url in PROJECT['urls'].values())
    assert all(f'name: {author["name"]}\n' in citation for author in PROJECT['authors'])
