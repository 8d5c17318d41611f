"""Tests that the lm-evaluation-harness adapter gives the log-probabilities of `nplm score` for all models."""

import io
import json
import math
import sys
import types

import numpy as np
import pytest
from helpers import refuses

import nplm_jax
from configs import sentences, text
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

pytest.importorskip('lm_eval', reason='pip install lm_eval')
pytestmark = pytest.mark.filterwarnings('ignore')

KNESER_NEY = {'model.family': 'kneser_ney', 'model.n': 3}
LSTM = {
    'model.family': 'lstm', 'model.bptt_length': 2, 'train.batch_size': 2, 'train.epochs': 2, 'train.evaluate_every': 0,
}  # fmt: skip
LINES = ['i like dog', 'i love coffee', 'i hate zebras', 'dog']


def requests(*arguments):
    return [types.SimpleNamespace(args=args) for args in arguments]


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp('runs')
    for name, changes in (('counts', KNESER_NEY), ('lstm', LSTM)):
        experiment.run(config_lib.override(sentences.get_config(), changes), root / name)
    (root / 'text.txt').write_text('The cat sat on the mat.\nThe dog sat on the cat!\n' * 40)
    changes = {'corpus.path': str(root / 'text.txt'), 'corpus.tokens': 'bytes', **KNESER_NEY}
    experiment.run(config_lib.override(text.get_config(), changes), root / 'bytes')
    return root


def make(runs, *names, **arguments):
    from nplm_jax.lm_eval import NplmLM  # noqa: PLC0415 (lm_eval may be missing)

    return NplmLM('+'.join(str(runs / name) for name in names), **arguments)


@pytest.mark.parametrize('names', [('counts',), ('lstm',), ('counts', 'lstm'), ('bytes',)])
def test_totals_are_those_of_nplm_score(runs, names, nplm_command, monkeypatch, tmp_path):
    lm = make(runs, *names)
    stdin = types.SimpleNamespace(buffer=io.BytesIO('\n'.join(LINES).encode()))
    monkeypatch.setattr(sys, 'stdin', stdin)
    printed = json.loads(nplm_command('score', *(runs / name for name in names), '--json')[0][0])
    expected = [sum(line['log10_p']) * math.log(10) for line in printed['lines']]
    np.testing.assert_allclose(lm.loglikelihood_rolling(requests(*((line,) for line in LINES))), expected, atol=1e-6)
    whole = lm.loglikelihood(requests(*(('', line) for line in LINES)))
    np.testing.assert_allclose([log_p for log_p, _ in whole], expected, atol=1e-6)
    split = [line.partition(' ') for line in LINES]
    (rest,) = zip(*((log_p,) for log_p, _ in lm.loglikelihood(requests(*((a, b + c) for a, b, c in split)))))
    begin = lm.loglikelihood_rolling(requests(*((a,) for a, _, _ in split)))
    np.testing.assert_allclose(np.add(begin, rest), expected, atol=1e-5)


def test_greedy_continuations_are_told(runs):
    lm = make(runs, 'counts')
    loaded = nplm_jax.load(runs / 'counts')
    vocabulary, model = loaded.vocabulary, loaded.model
    prompt = vocabulary.encode(['<p>', 'i', 'like']) if '<p>' in vocabulary.ids else vocabulary.encode(['i', 'like'])
    best = vocabulary.words[int(model.next_word(prompt[None])[0].argmax())]
    others = [word for word in ('dog', 'milk', 'coffee') if word != best]
    (_, yes), (_, no), (log_p, empty) = lm.loglikelihood(
        requests(('i like', f' {best}'), ('i like', f' {others[0]}'), ('i like', ''))
    )
    assert (yes, no, empty, log_p) == (True, False, True, 0.0)


def test_texts_are_generated_until_an_end(runs):
    lm = make(runs, 'bytes')
    (full,) = lm.generate_until(requests(('The cat', {'until': [], 'max_gen_toks': 30})))
    assert len(full) == 30
    (cut,) = lm.generate_until(requests(('The cat', {'until': [full[5:8]], 'max_gen_toks': 30})))
    assert cut == full[: full.index(full[5:8])]
    options = {'until': '\n', 'do_sample': True, 'temperature': 1.0, 'max_gen_toks': 30}
    drawn = [make(runs, 'bytes', seed=seed).generate_until(requests(('The ', options)))[0] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] and '\n' not in drawn[2]


def test_a_task_of_the_harness_on_local_files(runs, tmp_path):
    import lm_eval  # noqa: PLC0415
    from lm_eval.tasks import TaskManager  # noqa: PLC0415

    rows = [{'good': 'i like dog', 'bad': 'dog like i'}, {'good': 'i love coffee', 'bad': 'coffee coffee coffee'}]
    (tmp_path / 'pairs.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    task = {
        'task': 'pairs', 'dataset_path': 'json', 'dataset_kwargs': {'data_files': str(tmp_path / 'pairs.jsonl')},
        'output_type': 'multiple_choice', 'test_split': 'train', 'doc_to_text': '', 'doc_to_target': 0,
        'doc_to_choice': '{{[good, bad]}}', 'metric_list': [{'metric': 'acc'}],
    }  # fmt: skip
    found = lm_eval.simple_evaluate(
        make(runs, 'lstm', 'counts'), tasks=[task], task_manager=TaskManager(), bootstrap_iters=0
    )
    lm = make(runs, 'lstm', 'counts')
    good, bad = (lm.loglikelihood_rolling(requests(*((row[key],) for row in rows))) for key in ('good', 'bad'))
    assert found['results']['pairs']['acc,none'] == np.mean(np.greater(good, bad))


def test_mistakes_are_one_line(runs):
    with refuses('RUN'):
        make(runs, 'nothing')
    with refuses('--weights'):
        make(runs, 'counts', 'lstm', weights='0.5')
