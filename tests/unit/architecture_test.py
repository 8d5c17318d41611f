"""The structure of the package: no import cycles, and no code that assumes the default platform."""

import graphlib

import grimp
from helpers import ROOT


def test_no_modules_import_each_other_in_a_cycle():
    graph = grimp.build_graph('nplm_jax', 'configs', 'experiments', exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    assert len(imports) > 90
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError


def test_the_platform_is_that_of_the_devices_in_use():
    """A program compiled ahead of time for a TPU, on a machine without one, is the program of a TPU."""
    assert [str(file) for file in (ROOT / 'nplm_jax').rglob('*.py') if 'default_backend' in file.read_text()] == []
