"""Tests that the spelling model of a run is a separate run: training, resuming, loading and errors."""

import contextlib
import math

import numpy as np
import pytest
from helpers import refuses, same_bits

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.data.characters import END
from nplm_jax.data.stream import RARE
from nplm_jax.inference import generation
from nplm_jax.inference.drawn_spellings import decode_and_spell
from nplm_jax.models.open_vocabulary import OpenVocabulary
from nplm_jax.reporting import catalog
from nplm_jax.runs import estimation, experiment, loading, spelling
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.training.train import Interrupted

QUICK = {
    **{'model.n': 4, 'model.m': 5, 'model.h': 16, 'optimizer.learning_rate': 0.02, 'train.batch_size': 64},
    **{'train.epochs': 12, 'train.evaluate_every': 0, 'train.patience': 9, 'train.steps_per_execution': 30},
}


def make_words(rng, num_words, first, second):
    """Returns words made of pairs of letters: 'ba', 'gidu', ..."""
    pairs = [a + b for a in first for b in second]
    return [''.join(rng.choice(pairs, rng.integers(1, 4))) for _ in range(num_words)]


@pytest.fixture(scope='module')
def run_folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp('spelling'), np.random.default_rng(0)
    rare = make_words(rng, 400, 'bdgkl', 'aiu')
    (root / 'text').write_text(' '.join(word for new in rare for word in ('the', 'old', new, 'dog', '.')))
    config = text_config.get_config()
    config.corpus.path, config.corpus.boundary_tokens, config.corpus.min_count = str(root / 'text'), False, 30
    config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2})
    experiment.run(config, root / 'run')
    return root / 'run'


@pytest.fixture(scope='module')
def trained(run_folder):
    return spelling.train(run_folder, spelling.read_rare_words(run_folder), 1, 'test', QUICK)


def test_the_spelling_of_a_run_is_a_run_over_the_characters_of_its_rare_words(run_folder, trained):
    rare = spelling.read_rare_words(run_folder)
    loaded = loading.load(run_folder / 'spelling')
    settings, symbols, model = loaded.settings, loaded.vocabulary, loaded.model
    assert symbols.words[:2] == (RARE, END) and set(symbols.words[2:]) == set('bdgklaiu')
    assert (settings.name, settings.model.name, settings.model.n) == ('text-spelling', 'nplm', 4)
    assert catalog.finished(run_folder / 'spelling')['command'] == 'test'
    assert same_bits(model.params, trained.model.params) and trained.vocabulary.words == rare.vocabulary.words
    assert set(rare.words['train']).isdisjoint(rare.vocabulary.words) and 'the' in rare.vocabulary.ids


def test_it_learns_the_letters_of_new_words(run_folder, trained):
    rare = spelling.read_rare_words(run_folder)
    measured = spelling.measure(trained, rare.words)
    assert measured['test']['words'] == len(rare.words['test']) == 40
    known = set(rare.words['train'])
    new = [word for word in rare.words['test'] if word not in known]
    assert measured['new']['words'] == len(new) and measured['new']['characters'] == sum(map(len, new)) + len(new)
    uniform = math.log2(9)
    assert 1.5 < measured['new']['bits_per_character'] < uniform - 0.5
    words = [w for w in rare.words['test'] if w not in known]
    bits = -trained.log_probabilities(words).sum() / math.log(2) / measured['new']['characters']
    assert measured['new']['bits_per_character'] == pytest.approx(bits, rel=1e-9)


def test_a_stopped_training_ends_with_the_same_bits(run_folder, trained, tmp_path, monkeypatch):
    rare = spelling.read_rare_words(run_folder)
    for name in ('config.json', 'corpus.json', 'tokenizer_config.json', 'vocabulary.txt'):
        (tmp_path / name).write_bytes((run_folder / name).read_bytes())
    looks = iter(range(1000))
    interruptible = contextlib.nullcontext(lambda: 15 if next(looks) % 7 == 6 else 0)
    monkeypatch.setattr(experiment, 'interruptible', lambda: interruptible)
    stops = 0
    while True:
        try:
            again = spelling.train(tmp_path, rare, 1, 'test', QUICK)
            break
        except Interrupted:
            stops += 1
    assert stops > 1 and same_bits(again.model.params, trained.model.params)


def test_another_seed_needs_another_folder(run_folder, trained):
    with refuses('--workdir'):
        spelling.train(run_folder, spelling.read_rare_words(run_folder), 2, 'test', QUICK)


def test_words_are_scored_and_written_by_what_was_loaded(run_folder, trained):
    loaded = loading.load(run_folder)
    words, model = loaded.vocabulary, loaded.model
    opened = OpenVocabulary(model, words, spelling.load(run_folder))
    text = 'the old bagi dog . the old ☃ dog .'.split()
    scored = opened.score(text)
    assert [text[t] for t in np.flatnonzero(scored.spelled_T)] == ['bagi', '☃']
    assert np.isfinite(scored.log_p_T).all() and scored.log_p_T[7] < scored.log_p_T[2] - 10
    ids_BxT = generation.sample(model, words.encode(['old']), 6, 20, generation.Choice(rare=True), seed=3)
    written = decode_and_spell(opened.spelling, ids_BxT, seed=3)
    new = [w for ids_T, line in zip(ids_BxT, written) for i, w in zip(ids_T, line) if i == 0]
    assert new and not set(new) & set(words.words) and set(''.join(new)) <= set('bdgklaiu')
    assert len(set(new)) > len(new) / 2
    assert all(w == words.words[i] for ids_T, line in zip(ids_BxT, written) for i, w in zip(ids_T, line) if i)


@pytest.mark.parametrize(('family', 'number'), [('nplm', 7), ('residual', 56), ('modified_kneser_ney', 7)])
def test_as_many_ends_separate_words_as_the_model_reads(run_folder, family, number):
    rare = spelling.read_rare_words(run_folder)
    settings, data = spelling.prepare(rare, changes={'model.family': family, 'model.n': 8})
    ends_T = np.asarray(data.tokens_T) == data.vocabulary.ids[END]
    assert ends_T.argmin() == number and ends_T[-number:].all() and not ends_T[-number - 1]


def test_a_model_that_reads_all_characters_is_refused(run_folder):
    with refuses('model.family'):
        spelling.prepare(spelling.read_rare_words(run_folder), changes={'model.family': 'lstm'})


def test_spellings_are_a_stream_where_the_run_reads_lines(run_folder):
    rare = spelling.read_rare_words(run_folder)
    lines = config_lib.replace(rare.settings, {'corpus.context': 'line'})
    settings, data = spelling.prepare(rare._replace(settings=lines))
    assert not estimation.reads_lines(settings, data)
    assert network_from_settings(settings, data.vocabulary).line_end is None


def test_no_spelling_there_is_one_line(folders):
    with refuses(f'{folders}/network {folders}/counts'):
        spelling.load(folders / 'network', folders / 'counts')


def test_a_run_that_knows_every_word_has_nothing_to_spell(folders):
    with refuses('RUN'):
        spelling.read_rare_words(folders / 'network')


def test_a_run_is_found_by_its_name(folders, tmp_path, monkeypatch):
    (tmp_path / 'runs').symlink_to(folders)
    monkeypatch.chdir(tmp_path)
    with refuses('RUN'):
        spelling.read_rare_words('network')
