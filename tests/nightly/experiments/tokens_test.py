"""Tests the study of tokens: its texts, runs with any number of updates, and measurements on a small text."""

import math

import numpy as np
import pytest

from configs import presets
from experiments.beyond.tokens import reading, study, texts
from experiments.beyond.tokens.study import Run
from experiments.use.reading_times.natural_stories import Stories
from nplm_jax.data import corpora
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.training_from_settings import prepare_run


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Small texts with words outside the vocabulary, and the systems with few pieces."""
    generator = np.random.default_rng(1)
    folder = tmp_path / 'texts' / 'brown'
    folder.mkdir(parents=True)
    words = np.array([f'{a}{b}' for a in ('ca', 'do', 'ra', 'wo', 'né') for b in ('t', 'gs', 'lf', 'w', 'm', 'b', 'n')])
    for split, size in {'train': 12_000, 'valid': 900, 'test': 900}.items():
        chosen = generator.choice(words, size, p=np.arange(35, 0, -1) / 630)
        paragraphs = [['<p>', *part.tolist()] for part in np.array_split(chosen, 30)]
        (folder / f'{split}.txt').write_text(texts.to_text([word for part in paragraphs for word in part]))
    little = {'model.m': 8, 'model.h': 8, 'output.samples': 10}
    monkeypatch.setitem(presets.MINUTES, 'one_minute', {**presets.MINUTES['one_minute'], **little})
    monkeypatch.setitem(study.SYSTEMS[study.WORDS], 'corpus.max_vocabulary', 30)
    monkeypatch.setitem(study.SYSTEMS['bpe_2048'], 'corpus.pieces', 300)
    return tmp_path


@pytest.mark.filterwarnings('ignore:the text is too short')
@pytest.mark.parametrize('system', [study.WORDS, 'bpe_2048', 'bytes'])
def test_bits_are_those_of_all_bytes_of_the_test_text(small, system):
    run = Run('one_minute', 'brown', system, 1)
    measured = study.train(run, small, 40)
    file = small / 'texts' / 'brown' / 'test.txt'
    loaded = loading.load(small / 'runs' / run.name)
    settings, model = loaded.settings, loaded.model
    data = loading.load_dataset(settings)
    assert measured['bytes']['test'] == file.stat().st_size and measured['words']['test'] == 900
    log_p = model.score(data.tokens_T, data.test).astype(float).sum()
    key = 'log_p_closed' if system == study.WORDS else 'log_p'
    assert measured[key] == pytest.approx(log_p, rel=1e-6)
    assert measured['updates'] == 40 and measured['passes'] == pytest.approx(40 * 512 / len(data.train))
    bits = -measured['log_p'] / math.log(2) / file.stat().st_size
    assert measured['bits_per_byte'] == pytest.approx(bits)
    assert 2 ** (bits * file.stat().st_size / 900) == pytest.approx(measured['perplexity_per_word'])
    if system == study.WORDS:  # the score of an unknown word includes its spelling
        assert measured['vocabulary'] == 30 and measured['rare_test_words'] > 0
        assert measured['log_p'] < measured['log_p_closed']


def test_the_learning_rate_ends_with_the_last_update_in_the_middle_of_a_pass(small, monkeypatch):
    monkeypatch.setattr(study, 'CHUNK', 10)
    run = Run('one_minute', 'brown', study.WORDS, 1)
    files = texts.write('brown', small / 'texts')
    settings = experiment.load_settings(study.make_config(run, files))
    made = prepare_run(settings, loading.load_dataset(settings))
    shortened = study.shorten(made, 30)
    learning_rate = shortened.program.optimizer.learning_rate
    rates = [float(learning_rate(made.hyperparams, step)) for step in (0, 15, 29)]
    assert (made.schedule.steps_per_epoch, shortened.schedule.steps_per_epoch) == (23, 20)
    assert shortened.program.steps_per_epoch == 20 and shortened.schedule.total_steps == 30
    assert rates[:2] == pytest.approx([settings.optimizer.learning_rate, settings.optimizer.learning_rate / 2])
    assert 0 < rates[2] < 0.01 * rates[0]


@pytest.mark.filterwarnings('ignore:the text is too short')
def test_the_words_of_the_stories_are_split_as_the_texts_are(small):
    run, word_W = Run('one_minute', 'brown', study.WORDS, 1), np.arange(1, 4)
    study.train(run, small, 40)
    stories = Stories(["Cat's", 'dogs,', 'wolf.'], np.ones(3, int), word_W, *[np.zeros(3)] * 3)
    found = reading.read_texts(stories, small / 'runs' / run.name)
    assert found.tokens == ['cat', "'s", 'dogs', ',', 'wolf', '.'] and found.words_T.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_text_has_all_words_and_paragraphs():
    words = '<text> <p> a dog <p> the <rare> . <text> <p> end'.split()
    assert texts.to_text(words) == 'a dog\n\nthe <unk> .\n\nend\n'


def test_the_words_of_a_written_text_are_those_of_the_corpus(small):
    run = Run('one_minute', 'brown', study.WORDS, 1)
    settings = experiment.load_settings(study.make_config(run, texts.write('brown', small / 'texts')))
    corpus = corpora.load(settings.corpus)
    test = corpus.words[corpus.test.start : corpus.test.stop]
    assert texts.to_text(test) == (small / 'texts' / 'brown' / 'test.txt').read_text()


def test_a_start_makes_the_runs_seed_by_seed_and_each_once():
    runs = study.all_runs()
    assert len(set(runs)) == len(runs) == 2 * 6 * 2 == len({run.name for run in runs})
    first = runs[: len(study.SYSTEMS)]
    assert [run.system for run in first] == list(study.SYSTEMS)
    assert all(run.updates % study.CHUNK == 0 for run in runs)
    assert {(run.row, run.corpus, run.seed) for run in first} == {('one_minute', 'brown', 1)}
