"""The registry of count-based models."""

import numpy as np

from configs import sentences
from nplm_jax.config import NGRAM_FAMILIES, from_config
from nplm_jax.models.ngram import factory
from nplm_jax.runs import experiment


def test_the_registry_has_every_family_of_the_config():
    assert set(factory.NGRAM_MODELS) == set(NGRAM_FAMILIES)


def test_classes_are_found_once_and_then_read(tmp_path, monkeypatch):
    config = sentences.get_config()
    config.model.family, config.model.n, config.ngram.classes = 'classes', 2, 3
    settings = from_config(config)
    data = experiment.prepare(settings)
    model = factory.estimate(settings, data, tmp_path)
    monkeypatch.setattr(factory.class_ngram, 'exchange', None)
    again = factory.estimate(settings, data, tmp_path)
    np.testing.assert_array_equal(again.classes_V, model.classes_V)
