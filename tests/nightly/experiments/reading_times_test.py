"""Tests the study of reading times: its data, its models, and a complete run on a synthetic corpus."""

import hashlib
import math
import random

import numpy as np
import pytest
from helpers import no_app_missing, refuses

from configs import text
from experiments import points
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.command_line import load_config

with no_app_missing():
    from experiments.beyond.tokens import reading
    from experiments.use import models
    from experiments.use.reading_times import measure, natural_stories, table
    from nplm_jax.apps.psycholinguistics import frames as surprisal_frames


def test_tokens_are_summed_to_the_words_that_they_stand_in():
    # 'He said, "no."' in tokens that begin with spaces, with split words and separate punctuation
    tokens = {'He': math.nan, ' s': -1.0, 'aid': -2.0, ',': -0.5, ' "': -4.0, 'no': -8.0, '."': -16.0}
    words, offsets = ['He', 'said,', '"no."'], [0, 2, 4, 7, 8, 10, 12]
    sums = natural_stories.sum_tokens(words, list(tokens), list(tokens.values()), offsets)
    np.testing.assert_array_equal(sums, [math.nan, 3.5, 28.0])


@pytest.mark.parametrize(
    'tokens,offsets,key',
    [
        (['He', ' said, "no', '."'], [0, 2, 12], "token ' said, \"no' at character 2"),
        (['He', ' said,'], [0, 2], 'word 3'),
        (['He', ' sang,', ' "no."'], [0, 2, 8], 'words'),
        (['He', ' said,', ' "no."'], [0, 3, 9], "token ' said,' at character 3"),
    ],
)
def test_tokens_of_another_text_are_refused(tokens, offsets, key):
    with refuses(key):
        natural_stories.sum_tokens(['He', 'said,', '"no."'], tokens, [-1.0] * len(tokens), offsets)


def test_missing_and_changed_files_are_refused(tmp_path):
    with refuses('--data'):
        natural_stories.read(str(tmp_path))
    (tmp_path / 'processed_wordinfo.tsv').write_text('word\tzone\n')
    with refuses('processed_wordinfo.tsv'):
        natural_stories.read(str(tmp_path))


def test_the_config_of_every_model_takes_its_overrides():
    names = [run.name for run in models.runs()]
    assert len(set(names)) == len(names) and {'kneser_ney_4', 'five_minutes-1', 'five_minutes-2'} <= set(names)
    for point in points.use():
        settings = experiment.load_settings(config_lib.override(load_config(point.config), point.keys))
        assert settings.corpus.train == 800_000


def test_shuffled_surprisals_stay_in_their_story():
    story_W = np.repeat([1, 2], 50)
    surprisal_W = np.append(np.arange(99.0), 99)
    surprisal_W[[0, 50]] = np.nan
    other_W = measure.shuffled(surprisal_W, story_W)
    assert np.isnan(other_W[[0, 50]]).all() and (other_W != surprisal_W).mean() > 0.9
    assert sorted(other_W[1:50]) == list(range(1, 50)) and sorted(other_W[51:]) == list(range(51, 100))


def _make_text(rng, num_sentences, new_word=''):
    """Returns a synthetic text with some commas, and optionally with a new word."""
    words = ['bo' * (i % 5 + 1) + 'abcdefghij'[i % 10] for i in range(20)] + ([new_word] if new_word else [])
    sentences = (rng.choices(words, k=rng.randint(5, 9)) for _ in range(num_sentences))
    return ' '.join(' '.join(w + ',' * (rng.random() < 0.2) for w in s).rstrip(',') + '.' for s in sentences)


def _write_corpus(folder):
    """Writes three synthetic stories with reading times, and words as tokens. Returns the checksums of the files."""
    rng = random.Random(1)
    times, tokens = ['word\tzone\titem\tnItem\tmeanItemRT\tsdItemRT\tgmeanItemRT\tgsdItemRT'], []
    for story in (3, 1, 2):
        words = _make_text(rng, 20, 'newword').split()
        for zone, word in enumerate(words, start=1):
            time = rng.uniform(250, 400)
            times.append(f'{word}\t{zone}\t{story}\t80\t{time + 20}\t99\t{time}\t1.5')
        offset = 0
        for token in [words[0], *(f' {word}' for word in words[1:])]:
            log_p = rng.uniform(-9, 0) if offset else ''
            tokens.append(f'"{token}",{log_p},{offset},{story - 1}')
            offset += len(token)
    (folder / 'processed_wordinfo.tsv').write_text('\n'.join(times))
    (folder / 'all_stories_gpt3.csv').write_text('\n'.join(['token,logprob,offset,story', *tokens]))
    return {
        path: hashlib.sha256((folder / path.split('/')[1]).read_bytes()).hexdigest() for path in natural_stories.FILES
    }


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
@pytest.mark.filterwarnings('ignore:.*words are unknown')
def test_the_study_on_a_made_up_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(natural_stories, 'FILES', _write_corpus(tmp_path))
    rng = random.Random(2)
    (tmp_path / 'text.txt').write_text('\n\n'.join(_make_text(rng, 3) for _ in range(60)))
    for name, n in (('kneser_ney_2', 2), ('kneser_ney_5', 5)):
        config = text.get_config('kneser_ney_5')
        config.model.n, config.corpus.path = n, str(tmp_path / 'text.txt')
        experiment.run(config, tmp_path / 'runs' / name)
    runs = models.finished(tmp_path / 'runs')
    measured = measure.measure_all(runs, str(tmp_path), tmp_path / 'cache')
    assert [*measured['models']] == ['kneser_ney_2', 'kneser_ney_5'] and len(measured['stories']['counts']) == 3
    stories = natural_stories.read(str(tmp_path))
    for name, seeds in measured['models'].items():
        trained, read = seeds['1']['trained']  # the run, and its cached surprisals
        assert trained['versions'] == loading.load(tmp_path / 'runs' / name).results['versions'] == read['versions']
    assert measured['stories']['in_vocabulary'] == sum('newword' not in word for word in stories.words) > 0
    loaded = loading.load(tmp_path / 'runs' / 'kneser_ney_2')
    cache = measure.Surprisals(None, None, tmp_path / 'cache')
    cached = cache.of('kneser_ney_2', [tmp_path / 'runs' / 'kneser_ney_2'])['surprisals']
    for story in (1, 2, 3):
        is_story_W = stories.story_W == story
        words = [word for word, is_story in zip(stories.words, is_story_W) if is_story]
        bits = [row['surprisal_model'] for row in surprisal_frames.surprisal({'model': loaded}, words)]
        np.testing.assert_allclose(np.array(cached)[is_story_W], np.array(bits) * math.log(2), rtol=1e-5)
    read = reading.read_texts(stories, tmp_path / 'runs' / 'kneser_ney_2')  # of the study of tokens
    summed_W = reading.word_surprisals(tmp_path / 'runs' / 'kneser_ney_2', read, is_spelled=False)
    np.testing.assert_allclose(summed_W, cached, rtol=1e-5)
    assert table.make_table(measured).count('\n') == 5
    monkeypatch.setattr(measure, 'word_surprisals', None)  # the second time, all values come from the cache
    assert measure.measure_all(runs, str(tmp_path), tmp_path / 'cache') == measured
    with refuses('--runs'):
        models.finished(tmp_path)


def test_the_network_with_the_lowest_perplexity_is_also_mixed_and_adapted(tmp_path):
    best, other, counted = (models.Run(*of) for of in ((models.BEST, 2), ('mlp9', 2), (models.COUNTED,)))
    runs = {run: tmp_path / run.name for run in (counted, best, other)}
    assert list(measure.variants(runs))[3:] == [
        (models.MIXED, 2, [runs[best], runs[counted]]),
        (models.ADAPTED, 2, [runs[best]]),
    ]
    assert [name for name, *_ in measure.variants({best: runs[best]})] == [models.BEST, models.ADAPTED]


def test_the_correlation_and_the_line_are_those_of_the_models():
    counts_S = np.full(10, 100)
    own = [table.Model(math.exp(x), np.full(10, 100 * y), counts_S, [y]) for x, y in [(6, 1), (5, 2), (4, 3)]]
    value, (low, high) = table.correlate(own)
    assert (value, low, high) == (pytest.approx(-1), pytest.approx(-1), pytest.approx(-1))
    anchor = table.Model(math.exp(2), np.full(10, 400.0), counts_S, [4.0])
    assert table.above_line(own, anchor)[0] == pytest.approx(4 - 5)
