"""Tests `nplm reading-times`: the study's numbers, the written predictors, and errors for invalid tables."""

import json
import math
import os
import pathlib

import numpy as np
import pytest

from experiments import results
from nplm_jax.apps.psycholinguistics import gains

STORIES = pathlib.Path(os.environ.get('NPLM_DATA', ''), 'natural_stories', 'processed_wordinfo.tsv')


@pytest.mark.nightly
@pytest.mark.skipif(not STORIES.is_file(), reason='needs natural_stories/ in NPLM_DATA')
@pytest.mark.parametrize('scale,time,measure', [('log', 'gmeanItemRT', 'log'), ('ms', 'meanItemRT', 'mean')])
def test_the_gain_on_natural_stories_is_that_of_the_study(scale, time, measure, brown_bigram, tmp_path, nplm_command):
    header, *lines = STORIES.read_text().splitlines()
    lines.sort(key=lambda line: [int(cell) for cell in line.split('\t')[2:0:-1]])
    (tmp_path / 'stories.tsv').write_text('\n'.join([header, *lines]))
    arguments = brown_bigram, f'--time={time}', f'--scale={scale}', '--json'
    (out,), _ = nplm_command('reading-times', f'--table={tmp_path / "stories.tsv"}', *arguments)
    found, committed = json.loads(out), results.read(results.folder('reading_times'), 'gains')
    row, expected = found['models'][brown_bigram.name], committed['models']['kneser_ney_2']['1']
    assert found['counts'] == committed['stories']['counts'] and found['words'] == committed['stories']['words']
    assert found['baseline_r2'] == pytest.approx(committed['stories']['baseline_r2'][measure], rel=1e-6)
    assert row['perplexity'] == pytest.approx(expected['perplexity'], rel=1e-6)
    assert row['gain'] == pytest.approx(expected[measure]['gain'], rel=1e-5)
    np.testing.assert_allclose(row['sums'], expected[measure]['sums'], rtol=1e-4)
    nats = [slope / math.log(2) for slope in row['slopes']]
    np.testing.assert_allclose(nats, expected[measure]['slopes'], rtol=1e-5)
    statistic = gains.mean_gain(np.array(expected[measure]['sums']), np.array(found['counts']))
    assert row['interval'] == pytest.approx(gains.interval(statistic, 10), rel=1e-4)
