"""Tests the study of new words: the words left out of training, and the compared methods."""

import dataclasses

import numpy as np
import pytest
from helpers import make_corpus

from configs import text
from experiments.paper.section5 import new_words, new_words_task
from nplm_jax.data import encoding, vocabulary
from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.inference.induction import Weighting

CORPUS = make_corpus(num_words=1500)
DATA = encoding.build_dataset(CORPUS, vocabulary.build(CORPUS.words))
SMALL_TASK = {
    'COUNTS': (20, 95),
    'MIN_TRAIN': 4,
    'NUM_WORDS': 6,
    'MOST_SHOWN': 3,
}
SMALL_STUDY = {
    'NUM_VALID': 2,
    'NETWORKS': {'window': ('', {}, (1, 3))},
    'RARE_COUNT': 99,
    'NEIGHBOURS_OF': 2,
    'SHOWN_ONCE': 3,
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for module, values in ((new_words_task, SMALL_TASK), (new_words, SMALL_STUDY)):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def test_the_words_are_rare_in_training_and_their_first_occurrences_are_shown():
    task = new_words_task.make_task(DATA)
    assert len(set(task.words)) == 6 and RARE not in task.words
    stop = DATA.train.stop
    for word, count, shown_K in zip(task.words, task.counts_W, task.shown_WxK):
        positions = [t for t, other in enumerate(CORPUS.words) if other == word]
        assert 20 <= len(positions) <= 95 and count == sum(t < stop for t in positions) >= 4
        assert shown_K.tolist() == positions[:3] and shown_K[-1] < stop
        later = task.later_positions_B[task.later_words_B == task.words.index(word)]
        assert later.tolist() == [t for t in positions if t >= stop]
    left_out = task.left_out
    assert len(left_out.vocabulary) == len(DATA.vocabulary) - 6
    assert sum(left_out.vocabulary.counts) == len(DATA.train) == sum(task.full.vocabulary.counts)
    expected = [word if word not in task.words else RARE for word in CORPUS.words]
    assert left_out.vocabulary.decode(left_out.tokens_T) == expected
    grown = vocabulary.Vocabulary((*left_out.vocabulary.words, *task.words), (1,) * len(DATA.vocabulary))
    assert grown.decode(task.grown_tokens()) == CORPUS.words


def test_a_part_of_the_task_has_its_words_alone_and_leaves_out_the_others():
    task = new_words_task.make_task(DATA)
    part = task.select(slice(2, 4))
    assert part.words == task.words[2:4] and set(part.later_words_B) == {0, 1}
    others = {*task.words} - {*part.words}
    grown = vocabulary.Vocabulary((*task.left_out.vocabulary.words, *part.words), (1,) * (len(DATA.vocabulary) - 4))
    assert grown.decode(part.grown_tokens()) == [RARE if word in others else word for word in CORPUS.words]
    before, after = part.seen(1)[1][0]
    position = task.shown_WxK[3, 0]
    assert after.tolist() == task.left_out.tokens_T[position + 1 : position + 5].tolist()
    assert before.tolist() == task.left_out.tokens_T[max(0, position - 63) : position].tolist()


def test_a_model_that_predicts_by_counts_is_measured_readers():
    """A network without features predicts by its bias, so the means equal the means of the log-frequencies."""
    task = new_words_task.make_task(DATA).select(slice(0, 2))
    log_p_V = np.log((np.asarray(task.full.vocabulary.counts) + 1.0) / 9e3)

    class Unigram:
        network = params = None

        def prefill(self, contexts):
            return dataclasses.make_dataclass('State', ['features'])(None)

        advance = staticmethod(lambda state, ids: state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_words.new_words, 'nll', lambda network, params, features, ids: -log_p_V[ids])
        log_p_W, after_W = new_words.measure(Unigram(), task.full.tokens_T, task)
    np.testing.assert_allclose(log_p_W, log_p_V[task.ids_W])
    for w, mean in enumerate(after_W):
        next_words = [
            task.full.tokens_T[p + j]
            for p in task.later_positions_B[task.later_words_B == w]
            for j in range(1, 5)
            if p + j < len(CORPUS.words) and task.left_out.tokens_T[p + j] != RARE_ID
        ]
        assert mean == pytest.approx(log_p_V[next_words].mean())


def test_the_study_goes_from_two_trainings_to_its_tables(tmp_path, monkeypatch):
    (tmp_path / 'text').write_text(' '.join(CORPUS.words))

    def get_config(row):
        config = text.get_config()
        config.corpus.path, config.corpus.boundary_tokens, config.corpus.min_count = str(tmp_path / 'text'), False, 1
        config.model.n, config.model.m, config.model.h, config.train.epochs = 3, 8, 0, 2
        config.model.direct, config.train.batch_size = True, 16
        return config

    monkeypatch.setattr(new_words.brown, 'get_config', get_config)
    variants = ["the paper's weights", 'these, with the next word']
    measured = new_words.study('window', variants, tmp_path / 'runs', (2, 4))
    assert measured['chosen'] in variants and len(measured['words']['test']) == 4
    for split, num_words in (('valid', 2), ('test', 4)):
        for method in measured[split]:
            for shown in ('1', '3'):
                for kind in new_words.KINDS:
                    log_p_W = new_words.values(measured, split, method, kind, shown)
                    assert len(log_p_W) == num_words and (log_p_W < 0).all(), (split, method)
    monkeypatch.setattr(new_words, 'RESULTS', tmp_path)
    new_words.results.write(tmp_path / 'new_words_window.json', measured)
    assert new_words.share_table([measured]) in new_words.make(['window'])


def test_the_share_of_the_way_and_its_interval_by_hand():
    word = {'word': [-10.0, -9.0, -8.0], 'after': [-5.0, -5.0, -5.0]}
    measured = {
        'test': {
            'share of <rare>': {'word': [-11.0, -10.0, -9.0], 'after': [-6.0, -6.0, -6.0]},
            'trained': {'word': [-9.0, -6.0, -8.0], 'after': [-2.0, -2.0, -2.0]},
            'new': {'1': word},
        }
    }
    assert new_words.share_of_the_way(measured, 'test', 'new', 'word', '1') == pytest.approx(1 / (7 / 3))
    assert new_words.share_of_the_way(measured, 'test', 'new', 'word', '1', np.array([1])) == 0.25
    assert new_words.share_of_the_way(measured, 'test', 'new', 'after', '1') == 0.25
    x_W = np.arange(1000.0)
    low, high = new_words.interval(lambda numbers_W: x_W[numbers_W].mean(), 1000, 1)
    error = x_W.std() / 1000**0.5
    assert low == pytest.approx(499.5 - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(499.5 + 1.96 * error, abs=0.1 * error)


def test_a_new_word_goes_more_than_half_the_way_by_the_default_variant():
    measured = new_words.read('window')
    share = new_words.share_of_the_way(measured, 'test', measured['chosen'], 'word', '5')
    assert share > 0.5
    assert new_words.VARIANTS[measured['chosen']] == (Weighting(), 1.0)  # the default is the chosen variant
