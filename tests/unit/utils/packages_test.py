"""Tests that the error for a missing optional package contains the command that installs it."""

import importlib.metadata
import sys

import pytest
from helpers import refuses

from nplm_jax.utils.packages import OptionalPackage, package_digest, require_package


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


def test_the_digest_changes_with_the_version_of_a_tokenizer_package_that_need_not_be_installed(monkeypatch):
    version_of = importlib.metadata.version

    def digest(found):
        def version(name):
            if name == 'sentencepiece' and not found:
                raise importlib.metadata.PackageNotFoundError(name)
            return found if name == 'sentencepiece' else version_of(name)

        monkeypatch.setattr(importlib.metadata, 'version', version)
        return package_digest('utils')

    assert len({digest(found) for found in ('0.2.0', '0.2.1', '')}) == 3
