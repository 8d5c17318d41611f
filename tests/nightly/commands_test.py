"""Runs the documentation's blocks of shell commands and Python code as printed, in the folder of small_world.py."""

import importlib.util
import re
from typing import NamedTuple

import pytest
from helpers import ROOT
from small_world import SmallWorld

PAGES = [
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    *sorted(ROOT.glob('docs/*.md')),
    *sorted(ROOT.glob('docs/[a-z]*/*.md')),
]
SCRIPTS_PAGE = ROOT / 'docs' / 'howto' / 'chinese_japanese_thai.md'
# Text in commands that are not run -> the reason.
NOT_RUN = {
    'pip install': 'installs',
    'source .venv': 'needs the environment that the README creates',
    'cyclonedx-py': 'is not installed',
    'pip-audit': 'needs the internet',
    'git clone': 'needs the internet',
    'uv pip': 'installs',
    'docker ': 'is not installed',
    'nplm_jax.lm_eval run': 'is not installed',
    '--launcher=slurm': 'needs a cluster',
    'dask scheduler': 'needs a cluster',
    'dask worker': 'needs a cluster',
    '--scheduler=': 'needs a cluster',
    'dask_jobqueue': 'needs a cluster',
    'tensorboard ': 'is not installed',
    '--launcher=local --jobs=4': 'needs a server',
    'experiments.cost.accelerator.race': 'needs an accelerator',
}
# The small corpus has no word outside its vocabulary; tests/unit/apps/spelling/spell_test.py runs these commands.
NOT_RUN |= dict.fromkeys(('nplm spell', 'score runs/brown-mlp9 --open'), 'needs rare words')
# tests/unit/apps/export/onnx_graph_test.py runs this loop with exported graphs.
NOT_RUN['onnxruntime.InferenceSession'] = 'needs an exported graph'
NOT_RUN['nplm_from_scratch'] = 'tests/nightly/docs/from_scratch_test.py runs it'
# Commands that .ci/run contains as printed.
RUN_BY_CI = ('ruff ', 'sphinx-build ')
# Commands that need an optional package. They run if it is installed, as it is by .ci/run.
OPTIONAL = {
    'nplm explore': 'nicegui',
    '--to=hf': 'safetensors',
    '--to=onnx': 'jax2onnx',
    '--search': 'optuna',
    '--launcher=local': 'submitit',
    '--tune': 'rapidfuzz',
    '--maps': 'sklearn',
}

FILES = re.compile(r'^`(\w+\.py)`:\n\n```python\n(.*?)^```', re.DOTALL | re.MULTILINE)  # printed on a page
PROMPT = re.compile(r'^\$ (.*\n)', re.MULTILINE)  # a command in a block that also shows its output
SERVE = '--no_browser --port=0 > address & until grep -q http address; do kill -0 $!; sleep 0.2; done; kill $!'


class Block(NamedTuple):
    """A fenced block of a page: its location, language and lines."""

    place: str
    language: str
    code: str


def blocks() -> list[Block]:
    """Returns the blocks of all pages.

    The Python code of a page is one block, because later parts use names from earlier parts. A console block is reduced
    to its commands.
    """
    found = []
    for page in PAGES:
        text, name, python = page.read_text(), str(page.relative_to(ROOT)), []
        for match in re.finditer(r'^```(bash|python|console)\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
            if match[1] == 'python':
                python.append(match[2])
            else:
                code = match[2] if match[1] == 'bash' else ''.join(PROMPT.findall(match[2]))
                line = text.count('\n', 0, match.start()) + 2
                found.append(Block(f'{name}:{line}', match[1], code))
        if python:
            found.append(Block(name, 'python', '\n'.join(python)))
    return found


def commands(code: str) -> list[str]:
    """Returns the commands of a block, one per line and without comments."""
    lines = (re.sub(r'(^|\s+)#.*', '', line) for line in code.replace('\\\n', ' ').splitlines())
    return [line for line in lines if line.strip()]


def why_not_run(command: str) -> str:
    """Returns the reason why a command is not run, or '' if it is run."""
    missing = (f'needs {p}' for c, p in OPTIONAL.items() if c in command and importlib.util.find_spec(p) is None)
    by_ci = ('.ci/run runs it' for start in RUN_BY_CI if command.startswith(start))
    return next((reason for text, reason in NOT_RUN.items() if text in command), '') or next(missing, next(by_ci, ''))


@pytest.fixture(scope='session')
def small_world(tmp_path_factory):
    world = SmallWorld(tmp_path_factory.mktemp('world'))
    yield world
    world.close()


@pytest.mark.parametrize('block', blocks(), ids=lambda block: block.place)
def test_a_block_of_the_documentation_runs(block, small_world, tmp_path):
    if block.language == 'python':
        (tmp_path / 'block.py').write_text(block.code)
        run = [] if why_not_run(block.code) else ['python block.py']
    else:
        run = [c for c in commands(block.code) if not why_not_run(c)]
    reasons = sorted({why_not_run(c) for c in commands(block.code)} - {''})
    if not run or 'needs the internet' in reasons:  # later commands read what was downloaded
        pytest.skip('; '.join(reasons))
    made = set(re.findall(r'(?:configs/(?=brown\.py)|train )(brown)(?:\.py)?:(\w+)', block.code))
    small_world.copy(tmp_path, set(re.findall(r'runs/(brown-\w+)', block.code)) - {'-'.join(x) for x in made})
    for name, code in FILES.findall((ROOT / block.place.partition(':')[0]).read_text()):
        (tmp_path / name).write_text(code)
    script = '\n'.join(f'{c} {SERVE}' if 'nplm explore' in c and '--output' not in c else c for c in run)
    small_world.run_bash(script, tmp_path)


@pytest.mark.parametrize('section', SCRIPTS_PAGE.read_text().split('\n## ')[1:4], ids=lambda text: text.split('\n')[0])
def test_the_page_of_scripts_without_blanks_quotes_what_its_commands_print(section, small_world, tmp_path):
    (block,) = re.findall(r'^```bash\n(.*?)^```', section, re.DOTALL | re.MULTILINE)
    (quoted,) = re.findall(r'^```text\n(.*?)^```', section, re.DOTALL | re.MULTILINE)
    small_world.copy(tmp_path, set())
    small_world.run_bash(block, tmp_path)
    asked = [line for line in quoted.splitlines() if line.startswith('$ ')]
    printed = [small_world.run_bash(f'{line[2:]} 2> errors || cat errors', tmp_path) for line in asked]
    found = ''.join(f'{line}\n{text}' for line, text in zip(asked, printed))
    quoted, found = (re.sub(r'\d+\.\d+', lambda number: f'{float(number[0]):.2g}', text) for text in (quoted, found))
    assert found == quoted


def test_ci_runs_the_commands_that_are_left_to_it():
    ci = (ROOT / '.ci' / 'run').read_text()
    for block in blocks():
        for command in commands(block.code):
            if block.language == 'bash' and command.startswith(RUN_BY_CI):
                assert all(part in ci for part in command.split(' && ')), block.place
