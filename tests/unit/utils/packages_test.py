"""A missing optional package is named with the command that installs it."""

import sys

import pytest
from helpers import refuses

from nplm_jax.utils.packages import OptionalPackage, require_package


def test_a_module_of_a_package_is_returned():
    assert require_package('xml.dom', 'any') is sys.modules['xml.dom']


@pytest.mark.parametrize('module', ['absent_package', 'absent_package.numpy'])
def test_a_missing_package_is_named_with_the_extra_that_installs_it(module):
    with refuses('absent_package') as error:
        require_package(module, 'export', 'pip install --no-deps absent_package')
    assert error.value.problem.endswith('pip install "nplm-jax[export]" && pip install --no-deps absent_package')


def test_an_optional_package_is_imported_when_a_member_is_used():
    assert OptionalPackage('xml.dom', 'any').Node is sys.modules['xml.dom'].Node
    absent = OptionalPackage('absent_package', 'export')
    with refuses('absent_package'):
        absent.member  # noqa: B018
