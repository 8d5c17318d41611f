"""The README's commands, code and table are the ones that work."""

import pathlib
import re
import subprocess
import sys

from configs import sentences
from nplm_jax import experiment

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / 'README.md').read_text()


def test_ci_runs_the_readmes_test_command():
    (command,) = re.findall(r'```bash\n(.*-m pytest)\n```', README)
    ours = (ROOT / '.ci' / 'run').read_text()
    for step in ('python3 -m venv', 'pip', 'install', 'requirements.txt', 'python -m pytest'):
        assert step in command and step in ours


def test_the_notebook_lines_run(tmp_path, monkeypatch, lines):
    experiment.run(sentences.get_config(), tmp_path / 'runs' / 'sentences')
    (code,) = re.findall(r'```python\n(.*?)```', README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    lines()
    exec(code, {})
    assert lines()[0][0].startswith('coffee -0.')


def test_the_table_is_the_scripts_output():
    done = subprocess.run(
        [sys.executable, '-m', 'experiments.table1.table'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for readme in (README, (ROOT / 'experiments' / 'table1' / 'README.md').read_text()):
        assert done.stdout in readme


def test_every_file_of_the_map_is_there_and_every_module_on_it():
    named = set(re.findall(r'^  (\w+\.py) ', README, re.MULTILINE))
    assert named == {p.name for p in (ROOT / 'nplm_jax').glob('*.py')} - {'__init__.py', 'errors.py'}
