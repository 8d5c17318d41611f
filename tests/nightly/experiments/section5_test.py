"""Tests the studies of section 5: computed values and rejected inputs."""

import types

import numpy as np
import pytest
from helpers import DATA, make_model

from experiments import study
from experiments.paper.section5 import paired, priors, trees
from experiments.paper.section5.plugins import neighbours


@pytest.mark.parametrize(
    'words,start',
    [
        ('--take=foo', "--take='foo': "),
        ('--take=../x=runs/x', "--take='../x=runs/x': "),
        ('--take=huffman=nosuch', 'nosuch: '),
        ('--write=nosuch', "--write='nosuch': "),
        ('--write=nosuch --features=nosuch', 'nosuch: '),
        ('--features=runs/x', "--features='runs/x': "),
    ],
)  # fmt: skip
def test_words_that_the_study_of_trees_cannot_use_are_one_line(words, start, capsys):
    with pytest.raises(SystemExit, match='^2$'):
        study.run(trees.__doc__, define=trees.define, measure=trees.main, show=trees.table, argv=words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


def test_changes_are_relative_to_the_run_with_the_same_seed():
    runs = {}
    for seed, (test, nll) in enumerate([(100.0, 1.0), (200.0, 1.0), (50.0, 1.0)], 1):
        runs[f'a, seed {seed}'] = {'test': test, 'bands': {'before': [nll]}}
        runs[f'b, seed {seed}'] = {'test': test * (1 - seed / 100), 'bands': {'before': [nll + np.log(1.1)]}}
    content = {'runs': runs}
    np.testing.assert_allclose(paired.gains(content, 'b', 'a'), [-1, -2, -3])
    np.testing.assert_allclose(paired.band_gains(content, 'b', 'a', 'before', 0), [10, 10, 10])
    assert paired.mean_and_spread([-1, -2, -3], 2) == '-2.00 ± 1.00'


def test_the_bands_have_every_test_word_once():
    model = make_model(len(DATA.vocabulary))
    log_p_T = model.score(DATA.tokens_T, DATA.test)
    nll, words = paired.band_nll(log_p_T, DATA), paired.band_words(DATA)
    for by in ('predicted', 'before'):
        assert sum(words[by]) == len(DATA.test)
        total = sum(count * mean for count, mean in zip(words[by], nll[by]) if count)
        assert total == pytest.approx(-log_p_T.sum(), rel=1e-5)
        assert all((count == 0) == (mean is None) for count, mean in zip(words[by], nll[by]))


def test_a_network_is_scored_on_all_words_of_a_split_whatever_its_training_has_scored(monkeypatch):
    model = make_model(len(DATA.vocabulary))
    progress = types.SimpleNamespace(seconds=1.0, step=2, best_step=2)
    run = types.SimpleNamespace(program=types.SimpleNamespace(network=model.network))
    monkeypatch.setattr(paired, 'prepare_run', lambda *_: run)
    monkeypatch.setattr(paired, 'train', lambda *_: None)
    monkeypatch.setattr(paired, 'fit', lambda _: (model.params, {}, progress))
    _, scores = paired.measure(paired.quick({}), DATA)
    for split in paired.SPLITS:
        mean = model.score(DATA.tokens_T, DATA.splits[split]).mean(dtype=np.float64)
        assert scores[split] == pytest.approx(np.exp(-mean))


def test_shuffled_lists_are_the_same_lists_at_other_words():
    lists = neighbours.pad([[], [0, 2], [1], [], [3], [5], [4, 3]] + [[1]] * (len(DATA.vocabulary) - 7))
    shuffled = priors.shuffle(lists, 1)
    before, after = (sorted(map(tuple, np.asarray(n.ids_VxL)[:, :2].tolist())) for n in (lists, shuffled))
    rows = np.asarray(shuffled.ids_VxL), np.asarray(shuffled.weights_VxL)
    assert (rows[0] != lists.ids_VxL).any() and (rows[0][[0, 3]] == lists.ids_VxL[[0, 3]]).all()
    assert sorted(rows[1].max(axis=1)) == sorted(lists.weights_VxL.max(axis=1))
    assert [pair[0] for pair in before] == [pair[0] for pair in after]
