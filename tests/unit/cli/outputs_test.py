"""Tests the names of output files."""

import pytest

from nplm_jax.cli.commands import all_commands
from nplm_jax.utils.errors import BadInput

WRITERS = {
    'export': ['runs/x', '--to=arpa'],
    'mix': ['runs/x', 'runs/y', '--to=arpa'],
    'prune': ['x.arpa', '--entropy=1e-7'],
    'rescore': ['runs/x'],
}


@pytest.mark.parametrize('suffix', ['.gz', '.BZ2', '.xz', '.zst'])
@pytest.mark.parametrize('name', WRITERS)
def test_an_output_that_is_not_compressed_has_no_suffix_of_a_compressed_file(name, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        all_commands()[name].run(name, [*WRITERS[name], f'--output=lm.arpa{suffix}'])
    assert caught.value.key == '--output' and suffix in caught.value.problem
