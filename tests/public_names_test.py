"""`import nplm_jax` offers what most programs need, and imports it when it is first used."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest
from deleted_apps import lost_names
from helpers import ROOT

import nplm_jax

NAMES = {
    *('load_config', 'override', 'load_settings', 'load_dataset', 'train', 'load'),
    *('Vocabulary', 'LanguageModel', 'LoadedModel', 'Network', 'nplm', 'mixture', 'kenlm', 'decoding'),
    *(
        'perplexity',
        'encode_prompt',
        'sample',
        'Choice',
        'neighbours',
        'OpenVocabulary',
        'spelling',
        'induce',
        'surprisal',
    ),
}


IMPORTED = [name for name in nplm_jax.__all__ if name not in lost_names()]


def test_the_list_is_the_one_that_notebooks_and_the_documentation_rely_on():
    assert set(nplm_jax.__all__) == NAMES and sorted(nplm_jax.__all__) == nplm_jax.__all__


@pytest.mark.parametrize('name', IMPORTED)
def test_a_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(nplm_jax, name))


def test_type_checkers_and_editors_see_the_objects_that_a_program_gets():
    tree = ast.parse((ROOT / 'nplm_jax' / '__init__.py').read_text())
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name: node.module for node in branch.body for alias in node.names}
    assert imported.keys() == NAMES
    for name in IMPORTED:
        assert getattr(nplm_jax, name) is getattr(importlib.import_module(imported[name]), name)


def run_python(code):
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_import_brings_in_nothing_else():
    code = 'import sys; before = {*sys.modules}; import nplm_jax; print(*{*sys.modules} - before)'
    imported = run_python(code)
    assert 'nplm_jax' in imported
    assert not {name.split('.')[0] for name in imported} - {'nplm_jax', *sys.stdlib_module_names}
    assert not [name for name in imported if name.startswith('nplm_jax.')]


def test_the_import_takes_milliseconds():
    code = 'import time; t = time.perf_counter(); import nplm_jax; print(time.perf_counter() - t)'
    assert min(float(*run_python(code)) for _ in range(3)) < 0.1  # the fastest: other tests use the machine too


def test_a_name_is_offered_before_its_first_use_and_imported_by_it():
    code = (
        "import sys, nplm_jax; print('sample' in dir(nplm_jax), 'jax' in sys.modules); "
        "nplm_jax.sample; print('jax' in sys.modules)"
    )
    assert run_python(code) == ['True', 'False', 'True']


def test_a_config_is_loaded_without_jax():
    code = "import sys, nplm_jax; c = nplm_jax.load_config('configs/text.py'); print(c.name, 'jax' in sys.modules)"
    assert run_python(code) == ['text', 'False']


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'nplm_jax' has no attribute 'losd'"):
        nplm_jax.losd  # noqa: B018 (using it is what raises)
