"""Tests minimal pairs from a user's table: BLiMP's rule, ties, regions, and errors for invalid tables."""

import json
import os
import pathlib
import zipfile

import pytest
from helpers import ROOT

BLIMP = pathlib.Path(os.environ.get('NPLM_DATA', ''), 'blimp.zip')
PARADIGMS = ('adjunct_island', 'causative')


@pytest.mark.nightly
@pytest.mark.skipif(not BLIMP.is_file(), reason='needs blimp.zip in NPLM_DATA')
def test_the_counts_are_those_that_the_study_committed(brown_bigram, tmp_path, nplm_command):
    committed = json.loads((ROOT / 'experiments/use/minimal_pairs/results/kneser_ney_2.json').read_text())['counts']
    with zipfile.ZipFile(BLIMP) as archive:
        lines = [line for name in PARADIGMS for line in archive.read(f'data/{name}.jsonl').splitlines()]
    (tmp_path / 'blimp.jsonl').write_bytes(b'\n'.join(lines))
    arguments = brown_bigram, f'--table={tmp_path / "blimp.jsonl"}', '--group=UID', '--context=<text> <p>', '--json'
    (out,), _ = nplm_command('pairs', *arguments)
    groups = json.loads(out)['models'][brown_bigram.name]['groups']
    for name in PARADIGMS:
        row = groups[name]
        assert [row[key] for key in ('pairs', 'correct', 'ties')] == committed['all'][name]
        assert [row['known'][key] for key in ('pairs', 'correct', 'ties')] == committed['full'][name]
