"""The same words have the same probability everywhere; lm_eval_test.py compares lm-evaluation-harness."""

import warnings

import numpy as np
import pytest

import nplm_jax
from configs import sentences, text
from nplm_jax.apps.explorer import view
from nplm_jax.apps.psycholinguistics import measurement, stimuli
from nplm_jax.config import settings as config_lib
from nplm_jax.inference import generation, scoring
from nplm_jax.kenlm.model import Model
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import experiment

FAMILIES = {
    'ngram': {'model.family': 'modified_kneser_ney', 'model.n': 5},
    'window': {'model.n': 3, 'model.m': 4, 'model.h': 4, 'train.epochs': 1, 'train.evaluate_every': 0},
    'lstm': {
        'model.family': 'lstm', 'model.m': 4, 'model.h': 4, 'train.batch_size': 4, 'model.bptt_length': 2,
        'train.epochs': 1, 'train.evaluate_every': 0,
    },
}  # fmt: skip
TEXTS = {'words': 'i like coffee', 'pieces': 'The dog sat'}


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp('runs')
    nouns, verbs = ('dog', 'cat', 'horse', 'monkey', 'giraffe'), ('sat', 'jumped', 'slept', 'waited', 'danced')
    lines = [f'The {noun} {verb} under the {other}.\n' for noun in nouns for verb in verbs for other in nouns]
    (root / 'text.txt').write_text(''.join(lines))
    pieces = {'corpus.path': str(root / 'text.txt'), 'corpus.tokens': 'pieces', 'corpus.pieces': 300}
    for name, changes in FAMILIES.items():
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DiscountWarning)
            experiment.run(config_lib.override(sentences.get_config(), changes), root / f'words-{name}')
            experiment.run(config_lib.override(text.get_config(), {**pieces, **changes}), root / f'pieces-{name}')
    return root


def by_surprisal(folders, models, line):
    loaded = {name: nplm_jax.load(folder) for name, folder in zip(models.names, folders)}
    if len(loaded) > 1:
        loaded = measurement.add_mixture(loaded, models.mixture.weights_QxM.mean(0).tolist())
    options = measurement.Options(word_probability='sum' if models.vocabulary.tokenizer.is_lossless else 'corrected')
    columns = measurement.measure(loaded, stimuli.from_text(line, 'text'), options)
    return -sum(columns[f'surprisal_{list(loaded)[-1]}']) * np.log10(2)


def by_kenlm(folders, models, line):
    return Model(folders if len(folders) > 1 else folders[0]).score(line, eos=False)


def by_explorer(folders, models, line):
    prediction = view.predict(models, models.tokenize(line, ''), 1)[0]
    return -prediction.bits_T.sum() * np.log10(2)


def by_generation(folders, models, line):
    """log10 P of the tokens of a line, each drawn from what generation draws it from."""
    total, tokens = 0.0, models.tokenize(line, '')
    for position, token in enumerate(tokens):
        context_N = generation.encode_prompt(tokens[:position], models.vocabulary)
        total += float(models.mixture.next_word(context_N[None])[0][models.vocabulary.ids[token]])
    return total / np.log(10)


READERS = {'surprisal': by_surprisal, 'kenlm': by_kenlm, 'explorer': by_explorer, 'generation': by_generation}


@pytest.mark.parametrize('names', [('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm')], ids='+'.join)
@pytest.mark.parametrize('tokens', TEXTS)
def test_a_text_has_one_probability_in_every_command(runs, tokens, names):
    line, folders = TEXTS[tokens], [runs / f'{tokens}-{name}' for name in names]
    models = loaded_models.load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    found = {name: read(folders, models, line) for name, read in READERS.items()}
    assert found == pytest.approx(dict.fromkeys(found, scored.log10_p_T.sum()), abs=1e-6)
