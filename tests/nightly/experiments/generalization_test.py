"""Tests that the grammar's entropy is exact and that the study's table shows the measured values."""

import math
import pathlib
import shutil

import pytest
from helpers import refuses

from experiments.paper.generalization import grammar, study
from experiments.paper.generalization.grammar import END, START, Arc

CATS = grammar.cats_and_dogs()


def is_ambiguous(language):
    """Returns whether two derivations give the same sentence, that is, whether diverging readers can both finish."""
    reached, pending = {(START, START, False)}, [(START, START, False)]
    while pending:
        first, second, parted = pending.pop()
        for i, a in enumerate(language.get(first, ())):
            for j, b in enumerate(language.get(second, ())):
                now = a.next, b.next, parted or first != second or i != j
                if set(a.words) & set(b.words) and now not in reached:
                    reached.add(now)
                    pending.append(now)
    return (END, END, True) in reached


def test_probabilities_sum_to_one_and_every_state_ends():
    for state, arcs in CATS.items():
        assert math.fsum(arc.probability for arc in arcs) == pytest.approx(1), state
        assert {arc.next for arc in arcs} <= {*CATS, END}
        assert all(len(set(arc.words)) == len(arc.words) for arc in arcs)


def test_each_sentence_has_one_derivation():
    assert not is_ambiguous(CATS)


@pytest.mark.parametrize(
    'arcs',
    [
        (Arc(0.5, ('a', 'b'), END), Arc(0.5, ('b', 'c'), END)),
        (Arc(0.5, ('a',), 'x'), Arc(0.5, ('a',), 'y')),
    ],
)
def test_two_derivations_are_found(arcs):
    language = {START: arcs, 'x': (Arc(1, ('c', 'd'), END),), 'y': (Arc(1, ('d', 'e'), END),)}
    assert is_ambiguous(language)
    language['y'] = (Arc(1, ('e',), END),)
    assert is_ambiguous(language) == (arcs[0].next == END)


def test_the_entropy_of_a_small_grammar_by_hand():
    language = {
        START: (Arc(0.25, ('a',), END), Arc(0.75, ('b', 'c', 'd'), 'more')),
        'more': (Arc(1, ('e', 'f'), END),),
    }
    nats, words = grammar.entropy_and_length(language)
    assert nats == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(8))
    assert words == pytest.approx(1.75)
    assert grammar.floor(language) == pytest.approx(math.exp(nats / words))
    assert grammar.log_probabilities(language, 'b e a d'.split()) == pytest.approx(
        [-math.log(4), -math.log(2), -math.log(4), -math.log(4)]
    )
    with pytest.raises(ValueError):
        grammar.log_probabilities(language, ['b', 'a'])


def test_a_word_is_predicted_from_all_before_it():
    language = {
        START: (Arc(0.5, ('the', 'a'), 'one'), Arc(0.5, ('the', 'some'), 'many')),
        'one': (Arc(1, ('cat', 'fish'), END),),
        'many': (Arc(1, ('cats', 'fish'), END),),
    }
    after = {'a': [0.25, 0.5, 0.25], 'the': [0.5, 0.25, 0.5]}
    for first, p in after.items():
        log_p = grammar.log_probabilities(language, [first, 'cat', first])
        assert log_p == pytest.approx([math.log(x) for x in p])


def test_the_entropy_is_the_mean_of_what_sampled_sentences_say():
    words = grammar.text(CATS, 7, 40_000)
    words = words[: len(words) - words[::-1].index('.')]  # complete sentences
    log_p = grammar.log_probabilities(CATS, words)
    sums, sentence = [], 0.0
    for word, p in zip(words, log_p):
        sentence -= p
        if word == '.':
            sums.append(sentence)
            sentence = 0.0
    mean = math.fsum(sums) / len(sums)
    error = math.sqrt(sum((s - mean) ** 2 for s in sums) / len(sums) ** 2)
    nats, length = grammar.entropy_and_length(CATS)
    assert abs(mean - nats) < 4 * error and error < 0.01 * nats
    assert len(words) / len(sums) == pytest.approx(length, rel=0.01)
    assert math.exp(-math.fsum(log_p) / len(words)) == pytest.approx(grammar.floor(CATS), rel=0.01)


def test_a_text_is_the_same_however_long():
    assert grammar.text(CATS, 1, 50) == grammar.text(CATS, 1, 100)[:50]
    assert grammar.text(CATS, 1, 50) != grammar.text(CATS, 2, 50)


def test_every_model_is_measured_on_the_same_words(monkeypatch):
    monkeypatch.setattr(study, 'WORDS', {'valid': 500, 'test': 700})
    monkeypatch.setattr(study, 'COUNTS', study.COUNTS[:5])
    monkeypatch.setattr(study, 'NETWORKS', {'nplm': study.NETWORKS['nplm']})
    monkeypatch.setattr(study, 'UPDATES', (40, 40))
    small, large = study.make_data(100), study.make_data(300)
    assert small.vocabulary == large.vocabulary and len(small.vocabulary) == len(grammar.vocabulary(CATS)) + 1
    for split in ('valid', 'test'):
        a, b = (data.tokens_T[data.splits[split].start : data.splits[split].stop] for data in (small, large))
        assert a.tolist() == b.tolist() and len(a) == study.WORDS[split]
    measured = study.measure(100)
    assert {study.kind_of(name) for name in measured['models']} == {'word n-gram', 'nplm'}
    assert measured['floor_of_test_words'] == pytest.approx(grammar.floor(CATS), rel=0.1)
    for name, model in measured['models'].items():
        assert measured['floor_of_test_words'] < model['test'] < 2 * len(small.vocabulary), name


def test_the_committed_results_are_of_this_grammar_and_none_may_miss(tmp_path):
    assert all(measured['floor'] == pytest.approx(grammar.floor(CATS)) for measured in study.read(study.RESULTS))
    for file in study.RESULTS.glob('*.json'):
        shutil.copy(file, tmp_path)
    (tmp_path / '3000.json').unlink()
    with refuses('3000.json'):
        study.read(pathlib.Path(tmp_path))


def test_the_network_is_nearer_to_the_floor_from_300_000_words_on():
    sizes = {measured['words']: measured for measured in study.read(study.RESULTS)}
    assert [words for words, measured in sizes.items() if study.claim_holds(measured)] == [300_000, 1_000_000]
    measured = sizes[300_000]
    ours, theirs = (study.excess(measured, kind) for kind in ('nplm', 'word n-gram'))
    assert ours < theirs < study.excess(measured, 'class n-gram')
