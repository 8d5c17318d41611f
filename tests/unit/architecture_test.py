"""Tests the structure of the package: allowed imports, no cycles, and no dependence on the default platform."""

import ast
import functools
import graphlib
import pathlib
import re

import grimp
import pytest
from helpers import ROOT

# Module -> the maximum number of code lines in the module and all modules that it imports.
CLOSURES = {
    'nplm_jax.models.nplm': 1000,
    'nplm_jax.models.language_model': 150,
    'nplm_jax.training.step': 2500,
    'nplm_jax.inference.perplexity': 400,
    'nplm_jax.ngram.kneser_ney': 1200,
    'nplm_jax.runs.experiment': 10_117,
}


@functools.cache
def import_graph():
    return grimp.build_graph('nplm_jax', 'configs', 'experiments', exclude_type_checking_imports=True, cache_dir=None)


def code_lines(module):
    """Returns the number of lines of a module without blank lines, comments and docstrings."""
    path = pathlib.Path(ROOT, *module.split('.'))
    text = (path / '__init__.py' if path.is_dir() else path.with_suffix('.py')).read_text()
    documented = set()
    for node in ast.walk(ast.parse(text)):
        first = (getattr(node, 'body', None) or [None])[0] if not isinstance(node, (ast.IfExp, ast.Lambda)) else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            documented |= set(range(first.lineno, first.end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in documented and line.strip()[:1] not in ('', '#') for number, line in lines)


@pytest.mark.parametrize('module', CLOSURES)
def test_a_module_drags_along_no_more_than_its_reader_needs(module):
    closure = import_graph().find_upstream_modules(module) | {module}
    sizes = {name: code_lines(name) for name in closure}
    assert sum(sizes.values()) <= CLOSURES[module], sorted(sizes.items(), key=lambda item: -item[1])


def test_an_update_is_a_short_read():
    """docs/architecture.md lists the files of an update of the paper's network in the order of the calls."""
    text = (ROOT / 'docs' / 'architecture.md').read_text(encoding='utf-8')
    files = re.findall(r'^\| \[.*?\]\(\.\./nplm_jax/(.*?)\.py\) \|', text, re.MULTILINE)
    modules = [f'nplm_jax.{file.replace("/", ".")}' for file in files]
    assert 1 < len(modules) <= 11 and sum(map(code_lines, modules)) <= 1300
    closure = import_graph().find_upstream_modules(modules[0])
    assert set(modules[1:]) - {'nplm_jax.models.nplm', 'nplm_jax.outputs.full'} <= closure  # a config chooses these two


def test_no_modules_import_each_other_in_a_cycle():
    graph = import_graph()
    imports = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    assert len(imports) > 90
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError


def test_the_platform_is_that_of_the_devices_in_use():
    """A program compiled ahead of time for a TPU, on a machine without a TPU, must be the program for a TPU."""
    assert [str(file) for file in (ROOT / 'nplm_jax').rglob('*.py') if 'default_backend' in file.read_text()] == []
