"""Compares beam search without a lexicon with pyctcdecode's examples and a search over all alignments."""

import concurrent.futures
import copy
import dataclasses
import gc
import itertools
import math
import multiprocessing
import pickle
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
from helpers import refuses

import nplm_jax
from configs import sentences
from nplm_jax import kenlm
from nplm_jax.apps.decoding import ctcdecoder, spelled_prefixes
from nplm_jax.apps.decoding.frames import log_probabilities
from nplm_jax.apps.decoding.labels import Alphabet
from nplm_jax.apps.decoding.spelled_prefixes import SpelledPrefixes
from nplm_jax.decoding import BeamSearchDecoderCTC, build_ctcdecoder
from nplm_jax.runs import experiment

# The model, the labels and the emissions of pyctcdecode's tests, which its examples use.
BUGS_BUNNY = """\\data\\
ngram 1=5
ngram 2=5

\\1-grams:
-10\t<unk>\t0
0\t<s>\t0
0\t</s>\t0
0\tbugs\t0
0\tbunny\t0

\\2-grams:
0\tbunny </s>
-10\tbugs </s>
0\t<s> bugs
-10\t<s> bunny
0\tbugs bunny

\\end\\
"""
LABELS = [' ', 'b', 'g', 'n', 's', 'u', 'y', '']
TOY = """\\data\\
ngram 1=6
ngram 2=4

\\1-grams:
-1.5\t<unk>\t-0.25
-99\t<s>\t-0.3
-0.6\t</s>
-0.5\ta\t-0.125
-0.9\tab\t-0.2
-1.1\tba\t0

\\2-grams:
-0.3\t<s> ab
-0.75\ta ba
-0.2\tab a
-0.4\tba </s>

\\end\\
"""
EXHAUSTIVE = {'beam_width': 10**6, 'beam_prune_logp': -math.inf, 'token_min_logp': -math.inf}


def one_hot(labels, path):
    return np.array([[float(label == said) for label in labels] for said in path])


BUGS, BUNNY, SPACE = (one_hot(LABELS, path) for path in (['b', 'u', 'g', 's', '', ''], [*'bun', '', *'ny'], [' ']))
LOGITS = np.log(np.clip(np.vstack([BUGS * 0.49 + BUNNY * 0.51, SPACE, BUNNY]), 1e-15, 1))


@pytest.fixture(scope='module')
def arpa(tmp_path_factory):
    folder = tmp_path_factory.mktemp('arpa')
    (folder / 'bugs.arpa').write_text(BUGS_BUNNY)
    (folder / 'toy.arpa').write_text(TOY)
    return lambda name: str(folder / f'{name}.arpa')


@pytest.mark.parametrize(
    'options,expected',
    [
        (None, 'bunny bunny'),
        ({}, 'bugs bunny'),
        ({'alpha': 0.0}, 'bunny bunny'),
        ({'alpha': 1.0}, 'bugs bunny'),
        ({'alpha': 1.0, 'unigrams': []}, 'bugs bunny'),
        ({'alpha': 1.0, 'unigrams': ['bunny'], 'unk_score_offset': 0.0}, 'bugs bunny'),
        ({'alpha': 1.0, 'unigrams': ['bunny'], 'unk_score_offset': -10.0}, 'bunny bunny'),
    ],
)
def test_the_texts_are_those_that_pyctcdecode_publishes(arpa, options, expected):
    decoder = build_ctcdecoder(LABELS, *([] if options is None else [arpa('bugs')]), **(options or {}))
    assert decoder.decode(LOGITS) == expected


def test_labels_and_unigrams_can_be_iterators(arpa):
    decoder = build_ctcdecoder(iter(LABELS), arpa('bugs'), (word for word in ['bunny']), alpha=1.0)
    assert decoder.decode(LOGITS) == 'bunny bunny'


def test_pruning_and_hotwords_are_as_published(arpa):
    decoder, without = build_ctcdecoder(LABELS, kenlm_model_path=arpa('bugs')), build_ctcdecoder(LABELS)
    assert decoder.decode(LOGITS, token_min_logp=0.0) == 'bunny bunny'
    assert decoder.decode(LOGITS, hotwords=['bunny'], hotword_weight=20) == 'bunny bunny'
    assert decoder.decode(LOGITS, hotwords=['bugs', 'bunny'], hotword_weight=20) == 'bugs bunny'
    assert decoder.decode(LOGITS, hotwords=['bugs bunny'], hotword_weight=20) == 'bugs bunny'
    assert without.decode(LOGITS, hotwords=['bugs']) == 'bugs bunny'
    longer = np.log(np.clip(np.vstack([np.exp(LOGITS), *[SPACE, BUNNY] * 5]), 1e-15, 1))
    assert [len(without.decode_beams(longer, prune_history=pruned)) for pruned in (False, True)] == [16, 1]


def test_beams_have_the_published_scores_and_frames(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'), ['bugs', 'bunny'])
    for beams in (*decoder.decode_beams_batch(None, [LOGITS] * 2), decoder.decode_beams(LOGITS)):
        assert [beam.text for beam in beams] == ['bugs bunny']
        assert beams[0].text_frames == [('bugs', (0, 4)), ('bunny', (7, 13))]
        assert beams[0].logit_score == pytest.approx(-2.853399551509947, abs=1e-9)
        assert beams[0].lm_score == pytest.approx(0.14660044849005294, abs=1e-9)
    beams = build_ctcdecoder(LABELS).decode_beams(LOGITS)
    assert len(beams) == 16 and beams[-1].text == 'bugs bunny'
    assert beams[0].text_frames == [('bunny', (0, 6)), ('bunny', (7, 13))]
    assert beams[0].logit_score == pytest.approx(-2.6933782130551505, abs=1e-9)
    offset = build_ctcdecoder(LABELS, arpa('bugs'), [], unk_score_offset=0.0)
    beams = offset.decode_beams(LOGITS, beam_prune_logp=-20.0)
    assert len(beams) == 16 and [beam.text for beam in beams[:2]] == ['bugs bunny', 'bunny bunny']


def test_a_stretched_word_has_the_published_frames():
    path = [' ', '', 'b', 'u', 'n', '', 'n', 'n', 'y', '', ' ', ' ']
    best = build_ctcdecoder(LABELS).decode_beams(one_hot(LABELS, path))[0]
    assert best.text == 'bunny' and best.text_frames == [('bunny', (2, 9))]
    labels = ['▁bugs', '▁bun', 'ny', '']
    best = build_ctcdecoder(labels).decode_beams(one_hot(labels, ['', '▁bugs', '▁bun', 'ny', 'ny', '']))[0]
    assert best.text == 'bugs bunny' and best.text_frames == [('bugs', (1, 2)), ('bunny', (2, 5))]


def test_a_state_continues_a_text_as_published(arpa):
    probs = np.vstack([BUGS[:4], SPACE, BUGS * 0.51 + BUNNY * 0.49])
    decoder = build_ctcdecoder(LABELS, arpa('bugs'), ['bugs', 'bunny'])
    assert build_ctcdecoder(LABELS).decode(probs) == 'bugs bugs' and decoder.decode(probs) == 'bugs bunny'
    assert decoder.decode(probs[4:]) == 'bugs'
    state = decoder.decode_beams(probs[:4])[0].last_lm_state
    assert decoder.decode(probs[4:], lm_start_state=state) == 'bunny'


@pytest.mark.parametrize(
    'labels,expected',
    [
        ([' ', 'a', 'b'], [' ', 'a', 'b', '']),
        (['<pad>', '<s>', '</s>', '<unk>', '|', 'A', 'B'], ['', '<s>', '</s>', '⁇', ' ', 'A', 'B']),
        (['_', '|', 'a'], ['', ' ', 'a']),
        (['<unk>', '▁', '##a', '##b', 'a', 'b'], ['▁⁇▁', '▁', 'a', 'b', '▁a', '▁b', '']),
        (['[PAD]', '[UNK]', '[CLS]', '##a', 'a'], ['', '▁⁇▁', '[CLS]', 'a', '▁a']),
        (['<unk>', '▁bug', 's', '▁bunny'], ['▁⁇▁', '▁bug', 's', '▁bunny', '']),
    ],
)
def test_labels_are_read_as_published(labels, expected):
    assert build_ctcdecoder(labels)._alphabet.labels == expected


def total(model, text, alpha, beta, offset, unigrams, hotwords, weight):
    """Returns the terms that are added to log P of a text, computed explicitly."""
    words = text.split()
    score = weight * sum(word in hotwords for word in words)
    if model is None:
        return score
    unknown = sum(word not in model or (bool(unigrams) and word not in unigrams) for word in words)
    return score + alpha * math.log(10) * (model.score(text) + offset * unknown) + beta * len(words)


def search(logits_FxN, labels):
    """Returns log P of each text, summed over all alignments."""
    log_p_FxN = logits_FxN - np.logaddexp.reduce(logits_FxN, axis=1, keepdims=True)
    found = {}
    for path in itertools.product(range(len(labels)), repeat=len(log_p_FxN)):
        text = ''.join(labels[i] for i, _ in itertools.groupby(path)).replace('▁', ' ')
        found.setdefault(' '.join(text.split()), []).append(sum(row[i] for row, i in zip(log_p_FxN, path)))
    return {text: np.logaddexp.reduce(rows) for text, rows in found.items()}


@pytest.mark.filterwarnings('ignore:.* of the words are unknown')
@pytest.mark.parametrize('labels', [['', ' ', 'a', 'b'], ['▁a', 'b', '▁⁇▁', ''], ['▁ab', 'a', 'b', '']])
@pytest.mark.parametrize('unigrams', [None, ['ab'], []])
@pytest.mark.parametrize('hotwords', [[], ['ab', 'b']])
@pytest.mark.parametrize('alpha', [None, 0.4, 1.3])
def test_the_search_finds_what_a_search_over_all_alignments_finds(arpa, labels, unigrams, hotwords, alpha):
    rng = np.random.default_rng([len(labels[0]), len(hotwords), int(10 * (alpha or 0))])
    logits_FxN = rng.normal(size=(6, 4)) * 2
    options = {'alpha': alpha, 'beta': 0.7, 'unk_score_offset': -3.0}
    model = None if alpha is None else kenlm.Model(arpa('toy'))
    decoder = build_ctcdecoder(labels, model, unigrams, **options) if model else build_ctcdecoder(labels)
    beams = decoder.decode_beams(logits_FxN, hotwords=hotwords, hotword_weight=2.5, **EXHAUSTIVE)
    expected = search(logits_FxN, labels)
    used = alpha, 0.7, -3.0, unigrams, hotwords, 2.5
    scores = {text: log_p + total(model, text, *used) for text, log_p in expected.items()}
    assert {beam.text for beam in beams} == set(expected) and len(beams) == len(expected)
    assert [beam.lm_score for beam in beams] == sorted((beam.lm_score for beam in beams), reverse=True)
    for beam in beams:
        assert beam.logit_score == pytest.approx(expected[beam.text], abs=1e-6)
        assert beam.lm_score == pytest.approx(scores[beam.text], abs=1e-5)
        assert [word for word, _ in beam.text_frames] == beam.text.split()
    best = max(scores, key=scores.__getitem__)
    assert decoder.decode(logits_FxN, hotwords=hotwords, hotword_weight=2.5, **EXHAUSTIVE) == best


def frames_of_words(path, labels):
    """Returns the first frame of each word of an alignment, and the frame after the word's last label."""
    words, start, is_open = [], 0, False
    for number, group in itertools.groupby(path):
        label, end = labels[number], start + len([*group])
        is_open = is_open and label[:1] not in (' ', '▁')
        if label.strip(' ▁'):
            words[-1:] = [(words[-1][0], end)] if is_open else [*words[-1:], (start, end)]
            is_open = True
        start = end
    return words


@pytest.mark.parametrize('labels', [['', ' ', 'a', 'b'], ['▁a', 'b', '▁', '']])
def test_frames_are_those_of_the_most_probable_alignment_of_the_text(labels):
    paths_PxF = np.array([*itertools.product(range(len(labels)), repeat=5)])
    rows, frames = {}, [frames_of_words(path, labels) for path in paths_PxF.tolist()]
    for row, path in enumerate(paths_PxF):
        text = ''.join(labels[i] for i, _ in itertools.groupby(path)).replace('▁', ' ')
        rows.setdefault(' '.join(text.split()), []).append(row)
    decoder = build_ctcdecoder(labels)
    for seed in range(60):
        logits_FxN = np.random.default_rng(seed).normal(size=(5, len(labels))) * 0.3
        log_p_P = logits_FxN[np.arange(5), paths_PxF].sum(axis=1)
        for beam in decoder.decode_beams(logits_FxN, **EXHAUSTIVE):
            best = max(log_p_P[rows[beam.text]])
            expected = [frames[row] for row in rows[beam.text] if log_p_P[row] > best - 1e-9]
            assert [place for _, place in beam.text_frames] in expected


def test_a_part_of_an_unknown_word_is_pruned_and_one_of_a_hotword_is_not(arpa):
    labels = ['', ' ', 'a', 'b']
    logits_FxN = np.log(one_hot(labels, 'bbb') * 0.6 + one_hot(labels, 'aaa') * 0.4 + 1e-9)
    decoder = build_ctcdecoder(labels, arpa('toy'), ['a'], alpha=0.01)
    assert [beam.text for beam in decoder.decode_beams(logits_FxN, beam_prune_logp=-5)] == ['a']
    assert decoder.decode(logits_FxN, hotwords=['b'], hotword_weight=1.0, beam_prune_logp=-5) == 'b'


def test_memory_does_not_grow_by_a_row_of_labels_per_part(monkeypatch):
    labels = [*(('▁' if i % 3 else '') + f'{i}x' for i in range(4095)), '']
    rng = np.random.default_rng(0)
    logits_FxN = rng.normal(size=(120, len(labels)))
    logits_FxN[np.arange(120), rng.integers(0, 4095, (2, 120))] += 12
    decoder = build_ctcdecoder(labels)
    beams = decoder.decode_beams(logits_FxN, beam_width=20)
    monkeypatch.setattr(spelled_prefixes, '_ROWS', 10)
    prefixes = []
    made = lambda *a: prefixes.append(SpelledPrefixes(*a)) or prefixes[0]  # noqa: E731
    monkeypatch.setattr(ctcdecoder, 'SpelledPrefixes', made)
    assert decoder.decode_beams(logits_FxN, beam_width=20) == beams
    assert len(prefixes[0]._rows) < 60 < len(prefixes[0].parts)


@pytest.mark.parametrize('is_loaded', [False, True])
def test_a_network_scores_words(tmp_path, is_loaded):
    config = sentences.get_config()
    config.train.epochs, config.train.evaluate_every = 1, 0
    experiment.run(config, tmp_path / 'run')
    labels = ['', ' ', *sorted(set('ilikedog'))]
    logits = np.log(one_hot(labels, 'i like dog') + 1e-6)
    model = nplm_jax.load(tmp_path / 'run') if is_loaded else tmp_path / 'run'
    decoder = build_ctcdecoder(labels, model, alpha=0.3, beta=0.2)
    best = decoder.decode_beams_batch(Pool(), [logits])[0][0]  # a network: Pool.map is not called
    log10_p = kenlm.Model(tmp_path / 'run').score('i like dog')
    assert best.text == 'i like dog' and Pool.calls == 0
    assert best.lm_score - best.logit_score == pytest.approx(0.3 * log10_p * math.log(10) + 3 * 0.2, rel=1e-5)


class Pool:
    """A process pool that pickles its tasks and runs them in this process."""

    calls = 0

    def __init__(self, method='fork'):
        self._ctx = multiprocessing.get_context(method)

    def map(self, function, values):
        Pool.calls += 1
        pickled = pickle.dumps(function)
        assert len(pickled) < 2000  # without the model
        return [pickle.loads(pickled)(value) for value in values]


def test_a_batch_runs_in_a_pool_that_was_forked(arpa, monkeypatch):
    monkeypatch.setattr(Pool, 'calls', 0)
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    for pool, calls in ((Pool(), 1), (None, 1), (Pool('spawn'), 1), (Pool('forkserver'), 1)):
        assert decoder.decode_batch(pool, [LOGITS] * 2, beam_width=20) == ['bugs bunny'] * 2 and Pool.calls == calls
    for method in ('spawn', 'forkserver'):  # the processes of this pool do not have the model
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            assert decoder.decode_batch(pool, [LOGITS]) == ['bugs bunny']
    beams = decoder.decode_beams_batch(Pool(), [LOGITS])[0]
    single = decoder.decode_beams(LOGITS)[0]
    # transformers' Wav2Vec2ProcessorWithLM reads beams by place, and the frames at place 1 of a batch.
    assert beams[0][0] == single[0] and beams[0][1] == single[2] and beams[0][-2:] == single[-2:]


def test_a_pool_decodes_with_weights_that_were_changed_after_the_fork(arpa, monkeypatch):
    monkeypatch.setattr(Pool, 'calls', 0)
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    forked = {decoder._model_key: copy.copy(decoder._language_model)}  # the models of the pool's processes
    decoder.reset_params(alpha=0.0)

    class Forked(Pool):
        def map(self, function, values):
            with monkeypatch.context() as patch:
                patch.setattr(BeamSearchDecoderCTC, 'model_container', forked)
                return super().map(function, values)

    assert decoder.decode_batch(Forked(), [LOGITS]) == ['bunny bunny']


def test_a_copy_has_weights_of_its_own(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    for copied in (copy.copy(decoder), copy.deepcopy(decoder)):
        copied.reset_params(alpha=0.0)
        assert (copied.decode(LOGITS), decoder.decode(LOGITS)) == ('bunny bunny', 'bugs bunny')


def test_every_utterance_of_a_batch_has_hotwords_from_an_iterator(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    expected = decoder.decode(LOGITS, hotwords=['bunny'], hotword_weight=20)
    assert expected != decoder.decode(LOGITS)
    for pool in (None, Pool()):
        assert decoder.decode_batch(pool, [LOGITS] * 2, hotwords=iter(['bunny']), hotword_weight=20) == [expected] * 2
    batch = decoder.decode_beams_batch(None, [LOGITS] * 2, hotwords=iter(['bunny']), hotword_weight=20)
    assert [beams[0].text for beams in batch] == [expected] * 2


def test_weights_are_changed_as_transformers_changes_them(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    decoder.reset_params(alpha=0.0, beta=None)
    assert decoder.decode(LOGITS) == 'bunny bunny'
    decoder.model_container[decoder._model_key].alpha = 0.5
    assert decoder.decode(LOGITS) == 'bugs bunny'
    decoder.cleanup()
    assert decoder._model_key not in BeamSearchDecoderCTC.model_container


def test_a_decoder_without_its_model_is_one_line(arpa, monkeypatch):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    with monkeypatch.context() as patch, refuses('decoder'):
        patch.setattr(BeamSearchDecoderCTC, 'model_container', {})  # as in a process that was forked earlier
        decoder.decode(LOGITS)
    decoder.cleanup()
    for use in (lambda: decoder.decode(LOGITS), lambda: decoder.reset_params(alpha=1.0)):
        with refuses('decoder'):
            use()


def test_a_saved_decoder_is_loaded_again(arpa, tmp_path):
    options = {'alpha': 0.4, 'beta': 0.3, 'unk_score_offset': -7.0, 'lm_score_boundary': False}
    for decoder in (build_ctcdecoder(LABELS, arpa('bugs'), ['bunny'], **options), build_ctcdecoder(LABELS)):
        folder = tmp_path / str(decoder._language_model is None)
        decoder.save_to_dir(folder)
        decoder.save_to_dir(folder)  # a second time, as with save_pretrained
        loaded = BeamSearchDecoderCTC.load_from_dir(folder)
        assert [beam[2:] for beam in loaded.decode_beams(LOGITS)] == [beam[2:] for beam in decoder.decode_beams(LOGITS)]
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*.*'))
    assert names == [
        'False/alphabet.json', 'False/language_model/attrs.json', 'False/language_model/bugs.arpa',
        'False/language_model/unigrams.txt', 'True/alphabet.json',
    ]  # fmt: skip


def test_a_decoder_without_a_model_replaces_one_with_a_model(arpa, tmp_path):
    for model in ([arpa('bugs')], []):
        build_ctcdecoder(LABELS, *model).save_to_dir(tmp_path)
    assert BeamSearchDecoderCTC.load_from_dir(tmp_path)._language_model is None


def test_a_decoder_replaces_another_one_and_can_replace_itself(arpa, tmp_path):
    for name in ('bugs', 'toy'):
        build_ctcdecoder([' ', 'a', 'b', *'ugsny', ''], arpa(name)).save_to_dir(tmp_path)
    loaded = BeamSearchDecoderCTC.load_from_dir(tmp_path)
    loaded.reset_params(alpha=0.25)
    loaded.save_to_dir(tmp_path)
    again = BeamSearchDecoderCTC.load_from_dir(tmp_path)._language_model
    assert again.words == {'a', 'ab', 'ba'} and again.alpha == 0.25
    with refuses('kenlm_model'):
        build_ctcdecoder(LABELS, [arpa('bugs'), arpa('bugs')]).save_to_dir(tmp_path)
    assert BeamSearchDecoderCTC.load_from_dir(tmp_path)._alphabet == loaded._alphabet


def test_unigrams_are_loaded_whatever_characters_they_have(tmp_path):
    (tmp_path / 'lm.arpa').write_text(BUGS_BUNNY.replace('bunny', 'bun\vny'))
    for unigrams, expected in ((None, {'bugs', 'bun\vny'}), ([], set())):
        build_ctcdecoder(LABELS, tmp_path / 'lm.arpa', unigrams).save_to_dir(tmp_path / 'saved')
        loaded = BeamSearchDecoderCTC.load_from_dir(tmp_path / 'saved')
        assert loaded._language_model.words == expected


@pytest.mark.parametrize(
    'name,content,key',
    [
        ('alphabet.json', '{', 'alphabet.json:1'),
        ('alphabet.json', '{"labels": "ab", "is_bpe": false}', 'alphabet.json'),
        ('alphabet.json', '{"labels": ["", 1], "is_bpe": false}', 'labels'),
        ('alphabet.json', '{"labels": ["a", "b"], "is_bpe": false}', 'labels'),
        ('language_model/attrs.json', '{"alpha": 1}', 'attrs.json'),
        ('language_model/attrs.json', '[]', 'attrs.json'),
        ('language_model/another.arpa', '', 'filepath'),
    ],
)
def test_a_damaged_folder_of_a_decoder_is_one_line(arpa, tmp_path, name, content, key):
    build_ctcdecoder(LABELS, [arpa('bugs')]).save_to_dir(tmp_path)
    (tmp_path / name).write_text(content)
    with refuses(key):
        BeamSearchDecoderCTC.load_from_dir(tmp_path)


@pytest.mark.parametrize('encoding', ['ascii', 'nosuch'])
def test_words_in_another_encoding_are_one_line(arpa, tmp_path, encoding):
    build_ctcdecoder(LABELS, [arpa('bugs')]).save_to_dir(tmp_path)
    (tmp_path / 'language_model' / 'unigrams.txt').write_text('bugs\nbüny')
    with refuses('unigram_encoding'):
        BeamSearchDecoderCTC.load_from_dir(tmp_path, encoding)


def test_a_mixture_is_not_saved(arpa, tmp_path):
    with refuses('kenlm_model'):
        build_ctcdecoder(LABELS, [arpa('bugs'), arpa('bugs')]).save_to_dir(tmp_path)


def test_a_decoder_is_not_saved_in_the_folder_of_its_model(folders):
    with refuses('filepath'):
        build_ctcdecoder(['', ' ', *'ilkedog'], folders / 'counts').save_to_dir(folders / 'counts' / 'decoder')
    assert not (folders / 'counts' / 'decoder').exists()


def test_a_decoder_does_not_replace_its_model(folders, tmp_path):
    shutil.copytree(folders / 'counts', tmp_path / 'language_model')
    with refuses('filepath'):
        build_ctcdecoder(['', ' ', *'ilkedog'], tmp_path / 'language_model').save_to_dir(tmp_path)
    assert (tmp_path / 'language_model' / 'config.json').exists()


def test_a_model_without_a_file_replaces_no_saved_decoder(folders, arpa, tmp_path, monkeypatch):
    build_ctcdecoder(LABELS, [arpa('bugs')]).save_to_dir(tmp_path)
    model = dataclasses.replace(nplm_jax.load(folders / 'counts'), folder=None)
    shutil.copytree(folders / 'network', tmp_path / 'cwd' / model.settings.name)  # another model with this name
    monkeypatch.chdir(tmp_path / 'cwd')
    with refuses('kenlm_model'):
        build_ctcdecoder(['', ' ', *'ilkedog'], model).save_to_dir(tmp_path)
    assert BeamSearchDecoderCTC.load_from_dir(tmp_path).decode(LOGITS) == 'bugs bunny'


def test_a_model_is_freed_with_its_decoder(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    key = decoder._model_key
    pickle.loads(pickle.dumps(decoder))  # deleting a copy does not affect the model
    assert key in BeamSearchDecoderCTC.model_container
    copies = copy.copy(decoder), copy.deepcopy(decoder)
    del decoder
    gc.collect()
    assert key not in BeamSearchDecoderCTC.model_container
    assert [each.decode(LOGITS) for each in copies] == ['bugs bunny'] * 2


def test_no_frames_are_no_text_and_a_trailing_space_is_no_word(arpa):
    decoder = build_ctcdecoder(LABELS, arpa('bugs'))
    assert decoder.decode(np.zeros((0, len(LABELS)))) == ''
    path = [*'bugs', ' ', *'bun', '', *'ny']
    spoken, spaced = (decoder.decode_beams(one_hot(LABELS, p))[0] for p in (path, [*path, ' ']))
    assert spaced.text == spoken.text and spaced.lm_score == pytest.approx(spoken.lm_score)


LETTERS = ['', ' ', *'abcdefghijklmnopqrstuvwxyz']


def spoken(text, p=0.8):
    """Returns probabilities of letters, F x N; each letter of a text has probability `p` in its frame."""
    said_FxN = one_hot(LETTERS, text)
    return said_FxN * p + (1 - said_FxN) * (1 - p) / (len(LETTERS) - 1)


def rounded(p_FxN, form):
    if form == 'uint8':
        return np.round(p_FxN * 255).astype(np.uint8) / 255
    if form == 'softmax in bfloat16':
        odds_FxN = np.exp(np.log(p_FxN).astype(ml_dtypes.bfloat16))
        return (odds_FxN / odds_FxN.sum(axis=1, keepdims=True, dtype=ml_dtypes.bfloat16)).astype(np.float32)
    return p_FxN.astype(form)


@pytest.mark.parametrize('form', ['float16', ml_dtypes.bfloat16, 'uint8', 'float32', 'softmax in bfloat16'])
def test_rounded_probabilities_are_probabilities(form):
    decoder, rng = build_ctcdecoder(LETTERS), np.random.default_rng(0)
    for p in (0.5, 0.9, 0.9999):
        assert decoder.decode(rounded(spoken('the cat', p), form)) == 'the cat'
    for scale in (0.02, 0.1, 1.0):
        p_FxN = rng.dirichlet(np.full(len(LETTERS), scale), 40).clip(1e-12)
        p_FxN /= p_FxN.sum(axis=1, keepdims=True)
        log_p_FxN = log_probabilities(rounded(p_FxN, form), len(LETTERS))
        np.testing.assert_allclose(np.logaddexp.reduce(log_p_FxN, axis=1), 0, atol=1e-9)
        likely = p_FxN > 0.1
        np.testing.assert_allclose(log_p_FxN[likely], np.log(p_FxN[likely]), atol=0.08)


def test_probabilities_log_probabilities_and_logits_are_one_result():
    decoder, p_FxN = build_ctcdecoder(LETTERS), spoken('the cat')
    p_FxN *= np.random.default_rng(0).uniform(0.5, 1, p_FxN.shape)  # all texts have different probabilities
    p_FxN /= p_FxN.sum(axis=1, keepdims=True)
    expected = decoder.decode_beams(p_FxN)
    for values_FxN in (p_FxN * 0.9985, np.log(p_FxN), np.log(p_FxN) + 3, np.log(p_FxN) - [[9.0]]):
        found = decoder.decode_beams(values_FxN)
        assert [beam.text for beam in found] == [beam.text for beam in expected]
        np.testing.assert_allclose([beam.lm_score for beam in found], [beam.lm_score for beam in expected], atol=1e-9)


@pytest.mark.parametrize(
    'frame,change,total',
    [(7, lambda p: np.r_[p, np.zeros((2, 28))], '0'), (2, lambda p: p * (np.arange(7) != 2)[:, None], '0'),
     (0, lambda p: p * 0.5, '0.5'), (3, lambda p: p * np.where(np.arange(7) < 3, 1, 1.2)[:, None], '1.2'),
     (0, np.zeros_like, '0')],
)  # fmt: skip
def test_probabilities_of_which_a_frame_does_not_sum_to_one_are_refused(frame, change, total):
    with refuses('logits') as caught:
        build_ctcdecoder(LETTERS).decode(change(spoken('the cat')))
    assert {str(frame), total} <= set(re.findall(r'[\d.]*\d', caught.value.problem))


def noisy(seed):
    """Returns probabilities of the letters of a text, where some other letters are nearly as probable."""
    rng = np.random.default_rng(seed)
    p_FxN = spoken('the cat sat', 0.7) + 0.3 * rng.dirichlet(np.full(len(LETTERS), 0.05), 11)
    return p_FxN / p_FxN.sum(axis=1, keepdims=True)


@pytest.mark.parametrize('weight', [-1e6, -1000, -10, 1, 10, 1000, 1e6])
def test_the_beginning_of_a_hotword_changes_no_text(weight):
    decoder = build_ctcdecoder(LETTERS)
    for p, hotwords in itertools.product((0.3, 0.5, 0.8, 0.99), (['catalogue'], ['cathedral', 'theatres'])):
        text = decoder.decode(spoken('the cat', p), hotwords=hotwords, hotword_weight=weight)
        assert text == 'the cat'  # all hotwords have more letters than frames


@pytest.mark.parametrize('weight', [-1000, -3, 2, 10, 1000])
@pytest.mark.parametrize('seed', range(8))
def test_hotwords_change_a_text_only_for_more_of_them(weight, seed):
    decoder, logits_FxN = build_ctcdecoder(LETTERS), noisy(seed)
    hotwords = [['the', 'catalogue'], ['he', 'at'], ['cab', 'sad', 'thesaurus'], ['a', 'saturday']][seed % 4]
    plain, hot = (decoder.decode_beams(logits_FxN, **options)[0] for options in (
        {}, {'hotwords': hotwords, 'hotword_weight': weight}))  # fmt: skip
    counts = [sum(word in hotwords for word in beam.text.split()) for beam in (plain, hot)]
    assert hot.lm_score == pytest.approx(hot.logit_score + weight * counts[1])
    assert hot.lm_score >= plain.lm_score + weight * counts[0] - 1e-9
    assert hot.text == plain.text or weight * (counts[1] - counts[0]) > 0
    if weight < 0:
        assert hot.logit_score > plain.logit_score - 10  # kept without hotwords


def test_the_best_text_survives_one_that_completes_a_hotword_sooner():
    # 'bunny b' gets its bonus while the letters of 'bunny' are still being spoken.
    labels = ['', ' ', *'buny']
    p_FxN = one_hot(labels, ['b', 'u', 'u', 'n', '', 'n', 'y', '']) + 0.05
    p_FxN /= p_FxN.sum(axis=1, keepdims=True)
    for weight in (10, 1000):
        assert build_ctcdecoder(labels).decode(p_FxN, hotwords=['bunny'], hotword_weight=weight) == 'bunny'
    decoder = build_ctcdecoder(LETTERS)
    for hotwords, text in ((['cat'], 'cat cat'), (['the', 'catalogue'], 'the the'), (['cab'], 'cab cab')):
        assert decoder.decode(spoken('the cat', 0.5), hotwords=hotwords, hotword_weight=1000) == text


def test_hotwords_that_cannot_be_spelled_are_named_in_one_warning():
    p_FxN = spoken('the cat')
    with pytest.warns(UserWarning) as caught:
        text = build_ctcdecoder(LETTERS).decode(p_FxN, hotwords=['NASA cat', 'naïve', '', 'dog'])
    assert text == 'the cat' and len(caught) == 1
    assert all((name in str(caught[0].message)) == (name in ('NASA', 'naïve')) for name in ('NASA', 'naïve', 'dog'))


@pytest.mark.parametrize(
    'labels,unspellable',
    [
        (['', ' ', 'a', 'b'], ['abc']),
        (['▁a', 'b', 'ab', ''], ['abc', 'aa']),
        (['▁', 'ab', 'a', ''], ['abc', 'b', 'abb']),
        (['a', '##b', '[PAD]'], ['abc', 'aa']),
        (['▁⁇▁', '▁b', 'ab', ''], ['abc', 'a', 'aa', 'abb']),
    ],
)
def test_unspellable_words(labels, unspellable):
    words = ['abc', 'a', 'b', 'aa', 'ab', 'abb']
    assert Alphabet.build_alphabet(labels).unspellable(words) == unspellable


@pytest.mark.parametrize(
    'arguments,message',
    [
        ({'labels': 'abc'}, 'labels'),
        ({'labels': []}, 'labels'),
        ({'labels': None}, 'labels'),
        ({'labels': 5}, 'labels'),
        ({'labels': ['a', 1]}, 'labels'),
        ({'labels': ['a', 'b', 'a']}, 'labels'),
        ({'labels': ['a', '', '<pad>']}, 'labels'),
        ({'labels': ['▁a', ' ']}, 'labels'),
        ({'kenlm_model': 'none.arpa'}, 'path'),
        ({'kenlm_model': 5}, 'path'),
        ({'kenlm_model': [5]}, 'path'),
        ({'kenlm_model': None, 'kenlm_model_path': 5}, 'path'),
        ({'kenlm_model_path': 'x'}, 'kenlm_model_path'),
        ({'kenlm_model': None, 'unigrams': ['a']}, 'unigrams'),
        ({'labels': [' ', *'BUGSNY']}, 'labels'),
        ({'unigrams': ['x']}, 'unigrams'),
        ({'unigrams': 'bugs'}, 'unigrams'),
        ({'unigrams': 5}, 'unigrams'),
        ({'unigrams': iter([])}, 'unigrams'),
        ({'alpha': None}, 'alpha'),
        ({'beta': None}, 'beta'),
        ({'lm_score_boundary': None}, 'lm_score_boundary'),
        ({'alpha': '0.5'}, 'alpha'),
        ({'alpha': math.nan}, 'alpha'),
        ({'beta': math.inf}, 'beta'),
        ({'unk_score_offset': True}, 'unk_score_offset'),
        ({'lm_score_boundary': 1}, 'lm_score_boundary'),
    ],
)
def test_what_makes_no_decoder_is_one_line(arpa, arguments, message):
    with refuses(message):
        build_ctcdecoder(**{'labels': LABELS, 'kenlm_model': arpa('bugs'), **arguments})


def test_a_model_without_the_end_of_sentences_and_a_damaged_one_are_one_line(tmp_path):
    (tmp_path / 'lm.arpa').write_text('\\data\\\nngram 1=2\n\n\\1-grams:\n-1\t<unk>\n-0.1\ta\n\n\\end\\\n')
    with refuses('lm_score_boundary'):
        build_ctcdecoder(LABELS, tmp_path / 'lm.arpa')
    assert build_ctcdecoder(['a'], tmp_path / 'lm.arpa', lm_score_boundary=False).decode(np.eye(2)) == 'a'
    (tmp_path / 'lm.arpa').write_bytes(b'mmap lm http://kheafield.com/code format version 5\n\0')
    with refuses('lm.arpa'):
        build_ctcdecoder(LABELS, tmp_path / 'lm.arpa')


@pytest.mark.parametrize(
    'logits,options,message',
    [
        (LOGITS[0], {}, 'logits'),
        (LOGITS[:, :7], {}, 'logits'),
        (np.full((3, 8), np.nan), {}, 'logits'),
        (np.full((3, 8), np.inf), {}, 'logits'),
        (np.full((3, 8), -np.inf), {}, 'logits'),
        ([['a'] * 8], {}, 'logits'),
        (LOGITS, {'beam_width': 0}, 'beam_width'),
        (LOGITS, {'beam_width': 2.5}, 'beam_width'),
        (LOGITS, {'beam_prune_logp': 1.0}, 'beam_prune_logp'),
        (LOGITS, {'token_min_logp': None}, 'token_min_logp'),
        (LOGITS, {'hotwords': 'bugs'}, 'hotwords'),
        (LOGITS, {'hotwords': ['bugs', 1]}, 'hotwords'),
        (LOGITS, {'hotwords': 3}, 'hotwords'),
        (LOGITS, {'hotword_weight': 'x'}, 'hotword_weight'),
        (LOGITS, {'lm_start_state': 'x'}, 'lm_start_state'),
    ],
)
def test_what_cannot_be_decoded_is_one_line(arpa, logits, options, message):
    with refuses(message):
        build_ctcdecoder(LABELS, arpa('bugs')).decode(logits, **options)
