"""Tests that count-based models of small random texts are rejected or give one perplexity with all readers."""

import contextlib
import importlib
import importlib.util
import io
import random

import numpy as np
import pytest

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.data.line_start import LineStart
from nplm_jax.inference import scoring
from nplm_jax.kenlm.model import Model
from nplm_jax.ngram import arpa
from nplm_jax.runs import experiment, loading
from nplm_jax.utils.errors import BadInput

pytestmark = [
    pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning'),
    pytest.mark.filterwarnings('ignore:.* of the words are unknown'),
]

PRUNES = ('0', '0 0 1', '0 1', '0 1 2')
TYPES = 'a b c d e f g h i j k l m \u00e9 e\u0301 x\u00a0y <unk> <s> </s> <p> <text> <UNK> <rare>'.split(' ')


def make_text(rng):
    """Returns 1 to 60 lines of 1 to 12 words; one text in four also has empty lines."""
    known = TYPES[: rng.randint(2, 16)] + (TYPES[16:] if rng.random() < 0.2 else [])
    least = rng.random() < 0.75
    lines = [rng.choices(known, k=rng.randint(least, rng.choice((2, 12)))) for _ in range(rng.randint(1, 60))]
    return ''.join(' '.join(line) + '\n' for line in lines)


def check(rng, folder):
    """Estimates a model. Returns whether the estimation succeeded."""
    texts = {'path': make_text(rng), 'valid_path': make_text(rng)}
    texts['test_path'] = texts['valid_path']
    folder.mkdir()
    changes = {'model.family': rng.choice(('kneser_ney', 'modified_kneser_ney')), 'model.n': rng.randint(1, 6)}
    for key, text in texts.items():
        (folder / key).write_text(text)
        changes[f'corpus.{key}'] = str(folder / key)
    changes['corpus.min_count'] = rng.randint(1, 3)
    if changes['model.family'] == 'modified_kneser_ney' and changes['model.n'] > 2:
        changes['model.prune'] = rng.choice(PRUNES)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            config = config_lib.override(text_config.get_config('lmplz'), changes)
            results = experiment.run(config, folder / 'run')
    except BadInput as error:
        return str(error)
    lines = texts['test_path'].removesuffix('\n').split('\n')
    loaded = loading.load(folder / 'run')
    known, model = loaded.vocabulary, loaded.model
    ids = [np.append(known.encode(known.tokenize(line)), known.ids['<p>']) for line in lines]
    total = scoring.total(scoring.score(model, ids, LineStart.of(known)))
    found = {**results['perplexity'], 'score': total.perplexity}
    for name in ('run', 'run/model.arpa'):
        if name != 'run':
            arpa.write(model, known, folder / name)
        reader = Model(folder / name)
        scores = list(reader.score_lines(map(' '.join, map(known.tokenize, lines))))
        found[name] = scoring.total(scores).perplexity
        one_by_one = sum(map(reader.score, map(' '.join, map(known.tokenize, lines))))
        assert one_by_one == pytest.approx(sum(line.log10_p_T.sum() for line in scores), rel=1e-5)
    if importlib.util.find_spec('kenlm') and changes['model.n'] > 1:  # KenLM does not read 1-gram models
        found['KenLM'] = by_kenlm(folder / 'run/model.arpa', map(known.tokenize, lines))
    del found['train']
    assert [*found.values()] == pytest.approx([total.perplexity] * len(found), rel=1e-5), (changes, found)
    return ''


def by_kenlm(path, lines):
    """Returns the perplexity of tokenized lines, computed by the package kenlm."""
    kenlm = importlib.import_module('kenlm')
    model = kenlm.Model(str(path), kenlm.Config())
    log10_p = [log10_p for line in lines for log10_p, *_ in model.full_scores(' '.join(line))]
    return 10 ** (-sum(log10_p) / len(log10_p))


def test_a_few_small_texts_have_one_perplexity(tmp_path):
    search(tmp_path, 6, 1)


@pytest.mark.nightly
def test_many_small_texts_have_one_perplexity(tmp_path):
    search(tmp_path, 300, 2)


def search(folder, number, seed):
    rng = random.Random(seed)
    refused = [check(rng, folder / str(i)) for i in range(number)]
    assert sum(map(bool, refused)) < number / 2
