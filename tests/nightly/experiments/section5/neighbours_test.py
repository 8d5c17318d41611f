"""Tests related words by parts of speech, and the format of the lists."""

import numpy as np
from helpers import DATA, corpus_settings, default_settings, refuses

from experiments.paper.section5.plugins import neighbours
from experiments.paper.section5.plugins.neighbours import MAX_NEIGHBOURS
from nplm_jax.data import brown, corpora, vocabulary

TAGGED = "\n\n\tThe/at Dog's/nn$ barks/nns-tl ./.\n\n\nIt's/pps+bez a/at walk/nn-hl --/-- je/fw-ppss-nc ./.-hl\n"


def test_tags_stand_at_the_words_of_the_stream(monkeypatch):
    monkeypatch.setattr(brown, 'tagged_texts', lambda: [TAGGED, 'Walk/vb\n'])
    settings = corpus_settings('brown', train=5.0, valid=5.0)
    pairs = list(zip(corpora.load(settings).words, neighbours.brown_tags(settings), strict=True))
    assert pairs == [
        *(('<text>', '<text>'), ('<p>', '<p>'), ('the', 'at'), ('dog', 'nn'), ("'s", '$'), ('barks', 'nns')),
        *(('.', '.'), ('<p>', '<p>'), ('it', 'pps'), ("'s", 'bez'), ('a', 'at'), ('walk', 'nn'), ('--', '--')),
        *(('je', 'ppss'), ('.', '.'), ('<text>', '<text>'), ('<p>', '<p>'), ('walk', 'vb')),
    ]
    plain = corpus_settings('brown', train=5.0, valid=2.0, split_possessive=False, boundary_tokens=False)
    pairs = dict(zip(corpora.load(plain).words, neighbours.brown_tags(plain), strict=True))
    assert pairs["dog's"] == 'nn$' and pairs["it's"] == 'pps+bez'


def test_tags_of_all_of_brown_fit_its_words():
    settings = corpus_settings('brown', train=8e5, valid=2e5)
    words = corpora.load(settings).words
    tags = neighbours.brown_tags(settings)
    assert len(tags) == len(words) == 1_183_224 and len(set(tags)) == 167
    assert {tag for word, tag in zip(words, tags) if word == 'the'} <= {'at', 'nil', 'rb', 'in'}


def test_words_with_the_same_most_frequent_tag_are_related_in_training_alone():
    words = 'walk run walk the run run a walk talk talk sing dance'.split()
    tags = 'nn vb nn at vb nn at vb vb vb vb nn'.split()
    vocab = vocabulary.build(words)
    ids_T = vocab.encode(words)
    lists = neighbours.from_tags(ids_T[:11], tags[:11], len(vocab))  # dance occurs only after the training words
    related = {
        word: [vocab.words[i] for i in ids_L[weights_L > 0]]
        for word, ids_L, weights_L in zip(vocab.words, *lists, strict=True)
    }
    assert related == {
        '<rare>': ['<rare>'],
        'run': ['talk', 'sing'],
        'walk': ['walk'],  # no other word before dance is a noun
        'talk': ['run', 'sing'],
        'sing': ['run', 'talk'],
        'the': ['a'],
        'a': ['the'],
        'dance': ['dance'],
    }


def test_the_most_frequent_words_of_a_tag_are_the_neighbours_of_all():
    num_words = MAX_NEIGHBOURS + 5
    ids_T = np.concatenate([np.full(num_words - i, i + 1) for i in range(num_words)])
    ids_VxL, weights_VxL = neighbours.from_tags(ids_T, ['nn'] * len(ids_T), num_words + 1)
    assert ids_VxL[-1].tolist() == list(range(1, MAX_NEIGHBOURS + 1))
    assert ids_VxL[1].tolist() == list(range(2, MAX_NEIGHBOURS + 2))
    assert (weights_VxL[1:] == np.float32(1 / MAX_NEIGHBOURS)).all()


def test_a_list_that_is_not_full_repeats_the_word_without_weight():
    ids_VxL, weights_VxL = neighbours.pad([[2], [], [0, 1]])
    assert ids_VxL.dtype == np.int32 and ids_VxL.shape == weights_VxL.shape == (3, MAX_NEIGHBOURS)
    assert ids_VxL[:, :3].tolist() == [[2, 0, 0], [1, 1, 1], [0, 1, 2]]
    assert weights_VxL[:, :3].tolist() == [[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]]


def test_only_brown_has_tags():
    with refuses('corpus.name'):
        neighbours.of_tags(default_settings({'corpus.name': 'text'}), DATA)


def test_lists_are_written_and_read(tmp_path):
    lists = neighbours.pad([[2], [], [0, 1]])
    neighbours.save(tmp_path / 'lists.npz', lists)
    for array, expected in zip(neighbours.load(str(tmp_path / 'lists.npz')), lists, strict=True):
        np.testing.assert_array_equal(array, expected)
    with refuses('optimizer.options.neighbours'):
        neighbours.load('')
