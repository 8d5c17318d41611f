import json

import pytest

from configs import default
from nplm_jax import config as config_lib
from nplm_jax.utils.errors import BadInput


def config(**changes):
    c = default.get_config()
    c.update_from_flattened_dict({k.replace('__', '.'): v for k, v in changes.items()})
    return c


def test_the_default_config_has_every_key_and_survives_json():
    frozen = config_lib.from_config(config())
    assert config_lib.from_config(json.loads(json.dumps(config_lib.to_dict(frozen)))) == frozen


IMPOSSIBLE = [
    ('model.n', 1, 'must be 2 or more'),
    ('model.m', 0, 'must be 1 or more'),
    ('model.h', -1, r'must be 0 \(no hidden layer\) or more'),
    ('model.h', 0, 'no hidden layer needs model.direct=True'),
    ('model.dropout', 1.0, 'must be at least 0 and below 1'),
    ('optimizer.name', 'sdg', 'must be one of sgd, adam, adagrad, paper'),
    ('optimizer.schedule', 'cos', 'must be one of constant, linear, cosine'),
    ('optimizer.learning_rate', 0.0, 'must be above 0 and finite'),
    ('optimizer.learning_rate', float('inf'), 'must be above 0 and finite'),
    ('optimizer.learning_rate', float('nan'), 'must be above 0'),
    ('optimizer.momentum', 1.0, 'must be at least 0 and below 1'),
    ('optimizer.decay', -1e-5, 'must be 0 or more'),
    ('optimizer.paper.r', float('inf'), 'must be 0 or more'),
    ('optimizer.paper.epsilon_0', -1.0, 'must be above 0'),
    ('corpus.name', 'browne', 'must be one of brown, ap_news, wikitext2, text, sentences'),
    ('corpus.tokens', 'letters', 'must be one of words, whitespace'),
    ('corpus.count_over', 'test', 'must be one of all, train'),
    ('corpus.min_count', 0, 'must be 1 or more'),
    ('corpus.max_vocabulary', 2, r'must be 0 \(no limit\) or 3 or more'),
    ('corpus.train', 0.0, 'must be above 0 and below 1, a fraction of the stream, or 2 or more words'),
    ('corpus.valid', 1.0, 'must be above 0 and below 1'),
    ('model.family', 'trigram', 'must be one of nplm, rnn, gru, lstm, maximum_likelihood'),
    ('output.kind', 'hierarchical', 'must be one of full, sampled, nce, two_level'),
    ('output.samples', 0, 'must be 1 or more'),
    ('output.proposal', 'uniform', 'must be one of unigram, log_uniform'),
    ('output.num_shortlist', -1, 'must be 0 or more'),
    ('output.classes', 0, 'must be 1 or more'),
    ('ngram.delta', -1.0, 'must be at least 0 and at most 1e6'),
    ('parallel.data', 0, r'must be -1 \(all that is left\) or 1 or more'),
    ('parallel.model', -2, 'must be -1'),
    ('parallel.mode', 'pjit', 'must be one of shard_map, pmap'),
    ('train.batch_size', 0, 'must be 1 or more'),
    ('train.patience', 0, 'must be 1 or more'),
    ('seed', -1, 'must be at least 0'),
    ('name', 'a/b', 'must be a printable name without a slash'),
]


@pytest.mark.parametrize('key,value,allowed', IMPOSSIBLE)
def test_an_impossible_value_is_one_line_with_key_value_and_what_is_allowed(key, value, allowed):
    with pytest.raises(BadInput, match=f'^{key}=.*{allowed}') as caught:
        config_lib.from_config(config(**{key: value}))
    assert repr(value) in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.parametrize('key,value', [('momentum', 0.9), ('clip_norm', 1.0), ('name', 'adam')])
def test_a_cheap_gradient_needs_plain_gradient_descent(key, value):
    for kind in ('sampled', 'nce', 'two_level'):
        with pytest.raises(
            BadInput, match=f"^output.kind='{kind}': moves only some rows, and so needs optimizer.name="
        ):
            config_lib.from_config(config(output__kind=kind, **{f'optimizer__{key}': value}))
    config_lib.from_config(config(output__kind='nce', optimizer__name='paper', optimizer__momentum=0.9))


def test_more_samples_or_classes_than_words():
    fits = dict(samples=10, num_shortlist=4, classes=6)
    for kind in config_lib.OUTPUTS:
        config_lib.OutputSettings(kind, **fits).check(10)
    config_lib.OutputSettings('full', samples=11, num_shortlist=12).check(10)
    for kind, key, value, allowed in [
        ('sampled', 'samples', 11, 'must be 10, the vocabulary, or less'),
        ('nce', 'samples', 11, 'must be 10, the vocabulary, or less'),
        ('two_level', 'num_shortlist', 10, 'must be below 10, the vocabulary'),
        ('two_level', 'classes', 7, 'must be 6 or less, the words after output.num_shortlist'),
    ]:
        with pytest.raises(BadInput, match=f'^output.{key}={value}: {allowed}$'):
            config_lib.OutputSettings(kind, **{**fits, key: value}).check(10)


def test_unknown_missing_and_mistyped_keys():
    tree = config().to_dict()
    tree['model']['hidden'] = 3
    with pytest.raises(BadInput, match='^model.hidden: unknown key; allowed here: n, m, h, direct'):
        config_lib.from_config(tree)
    del tree['model']['hidden'], tree['train']['epochs']
    with pytest.raises(BadInput, match='^train.epochs: missing'):
        config_lib.from_config(tree)
    for value in ('6', 6.0, True, None):
        tree['train']['epochs'] = value
        with pytest.raises(BadInput, match='^train.epochs=.*must be of type int$'):
            config_lib.from_config(tree)
    tree['train'] = 3
    with pytest.raises(BadInput, match='^train=3: must be a section of keys'):
        config_lib.from_config(tree)
