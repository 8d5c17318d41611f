"""Tests every command with runs whose tokens are pieces, characters or bytes, in any language."""

import json

import pytest
from texts import CHINESE, repeated

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


NETWORK = {'model.n': 4, 'model.m': 8, 'model.h': 12, 'train.epochs': 2, 'train.batch_size': 32}


def score(monkeypatch, nplm_command, run, data, *flags):
    monkeypatch.setattr('nplm_jax.cli.score.read_stdin', lambda: data)
    return nplm_command('score', run, *flags)


def test_a_chinese_network_trains_and_its_text_is_readable(tmp_path, nplm_command, monkeypatch, capsys):
    (tmp_path / 'text').write_text(repeated(CHINESE), encoding='utf-8')
    changes = NETWORK | {'train.epochs': 6, 'corpus.tokens': 'pieces', 'corpus.pieces': 400}
    changes |= {'corpus.path': str(tmp_path / 'text')}
    experiment.run(config_lib.override(text_config.get_config(), changes), tmp_path / 'run')
    assert 'spaces' not in capsys.readouterr().err
    texts, stderr = nplm_command('generate', tmp_path / 'run', '--greedy', '--prompt=人人', '--max_new_tokens=10')
    assert stderr == [] and texts[0].startswith('人人')
    rows, stderr = score(monkeypatch, nplm_command, tmp_path / 'run', '人人有权', '--json')
    (line,) = json.loads(rows[0])['lines']
    assert stderr == [] and ''.join(line['words']) == '人人有权' and line['total'] < 0
