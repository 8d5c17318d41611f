"""Tests that `import nplm_jax` provides the names that most programs need and imports them on first use."""

import inspect
import subprocess
import sys

import pytest
from helpers import ROOT, no_app_missing

import nplm_jax

CORE = [name for name in nplm_jax.__all__ if not nplm_jax._MODULES[name].startswith('apps.')]


@pytest.mark.parametrize('name', CORE)
def test_a_public_name_resolves_and_has_a_docstring(name):
    with no_app_missing():
        assert inspect.getdoc(getattr(nplm_jax, name))


def run_python(code):
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_names_are_imported_on_first_use():
    code = (
        'import sys; before = {*sys.modules}; import nplm_jax; print(*{*sys.modules} - before)\n'
        "print('jax' in sys.modules, 'sample' in dir(nplm_jax))\n"
        "nplm_jax.sample; print('jax' in sys.modules)"
    )
    *imported, jax_before_use, is_offered, jax_after_use = run_python(code)
    assert {module.split('.')[0] for module in imported} <= {'nplm_jax', *sys.stdlib_module_names}
    assert not [module for module in imported if module.startswith('nplm_jax.')]
    assert (jax_before_use, is_offered, jax_after_use) == ('False', 'True', 'True')


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        nplm_jax.losd  # noqa: B018 (using it is what raises)
