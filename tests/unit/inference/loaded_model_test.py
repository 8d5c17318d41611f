"""Tests that `load` and `train` return the same kind of object, which all functions that use a model accept."""

import dataclasses
import pickle

import numpy as np
import pytest

import nplm_jax
from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers.pieces import PieceTokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram.class_ngram import ClassNgram
from nplm_jax.runs import experiment

MAX_REPR = 200
COUNTS = {'model.family': 'add_delta', 'model.n': 3}
SMALL = {'train.epochs': 1, 'train.evaluate_every': 0}
WORDS = ['i', 'like']


pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp('runs')
    for name, changes in (('counts', COUNTS), ('network', SMALL)):
        experiment.run(config_lib.override(sentences.get_config(), changes), root / name)
    return {name: nplm_jax.load(root / name) for name in ('counts', 'network')}


@pytest.mark.parametrize('name', ['counts', 'network'])
def test_every_reader_of_text_takes_it_and_gives_what_its_model_gives(runs, name):
    run = runs[name]
    prompt = nplm_jax.encode_prompt(WORDS, run)
    np.testing.assert_array_equal(prompt, nplm_jax.encode_prompt(WORDS, run.vocabulary))
    assert nplm_jax.perplexity(run, prompt) == nplm_jax.perplexity(run.model, prompt)
    drawn = (nplm_jax.sample(model, prompt, words=3, samples=2) for model in (run, run.model))
    np.testing.assert_array_equal(*drawn)
    log10_p = run.model.score(prompt)[-2:].sum() / np.log(10)
    model = nplm_jax.kenlm.Model(run)
    assert model.score(' '.join(WORDS), eos=False) == pytest.approx(log10_p, abs=1e-5)
    assert pickle.loads(pickle.dumps(model)).score('i like') == model.score('i like')
    assert nplm_jax.kenlm.Model([run]).score('i like') == pytest.approx(model.score('i like'), abs=1e-6)


def test_training_returns_what_loading_returns(tmp_path):
    trained = nplm_jax.train('sentences', tmp_path / 'run', SMALL)
    loaded = nplm_jax.load(tmp_path / 'run')
    assert type(trained) is type(loaded) is nplm_jax.LoadedModel
    for field in ('settings', 'vocabulary', 'folder', 'results'):
        assert getattr(trained, field) == getattr(loaded, field), field
    tokens = trained.vocabulary.encode(WORDS)
    np.testing.assert_array_equal(trained.model.score(tokens), loaded.model.score(tokens))
    assert trained.results['perplexity']['valid'] > 1


def test_a_run_that_is_not_finished_has_no_results(tmp_path, runs):
    run = runs['network']
    assert run.folder is not None and dataclasses.replace(run, results=None).results is None
    (run.folder / 'results.json').rename(run.folder / 'other.json')
    try:
        assert nplm_jax.load(run.folder).results is None
    finally:
        (run.folder / 'other.json').rename(run.folder / 'results.json')


def big_objects(runs):
    """Returns objects whose full contents would be thousands of words, rules or numbers, by name."""
    words = [f'word{i:05}-{"x" * 50}' for i in range(5000)]
    counted = vocabulary.build(words)
    models = [run.model for run in runs.values()]
    many = mixture.Mixture(models * 20, np.full((1, 40), 1 / 40), mixture.ContextBins())
    corpus = corpora.load(runs['counts'].settings.corpus)
    named = dataclasses.replace(runs['counts'].settings, name='n' * 300)
    return {
        **{f'run {name}': run for name, run in runs.items()},
        **{f'model {name}': run.model for name, run in runs.items()},
        'a run of a long name': dataclasses.replace(runs['counts'], settings=named, vocabulary=counted),
        'mixture': many,
        'loaded mixture': dataclasses.replace(runs['counts'], model=many),
        'cached': mixture.CachedScores(many),
        'classes': ClassNgram.fit(np.arange(4000) % 500, Span(0, 4000), 2, np.arange(500) % 9),
        'vocabulary': counted,
        'small vocabulary': vocabulary.build(['a', 'b']),
        'corpus': corpus,
        'dataset': nplm_jax.load_dataset(runs['counts'].settings),
        'pieces': PieceTokenizer(rules=tuple(f'a {word}' for word in words)),
        'proper nouns': WordTokenizer(names=frozenset(words)),
        'vocabulary of pieces': dataclasses.replace(counted, tokenizer=PieceTokenizer(rules=tuple(words))),
        'kenlm': nplm_jax.kenlm.Model(runs['counts']),
    }


def test_every_repr_is_one_short_line(runs):
    for name, thing in big_objects(runs).items():
        limit = (
            2 * MAX_REPR if 'pieces' == name or 'nouns' in name else MAX_REPR
        )  # tokenizers show their splitting rules
        assert len(repr(thing)) < limit and '\n' not in repr(thing), (name, repr(thing))
    assert repr(runs['counts']).startswith('<LoadedModel sentences: add_delta, ')
    assert 'n=3' in repr(runs['counts']) and f'{len(runs["counts"].vocabulary)} words' in repr(runs['counts'])
    assert repr(runs['network'].model).endswith('parameters>')


def test_no_model_shows_its_arrays():
    def subclasses(kind):
        return {kind}.union(*map(subclasses, kind.__subclasses__()))

    for kind in subclasses(LanguageModel):
        if kind.__module__.startswith('nplm_jax'):
            assert kind.__repr__ is LanguageModel.__repr__, kind
