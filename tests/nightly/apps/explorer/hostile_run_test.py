"""Tests `nplm explore` with damaged run folders, from the command to the first visitor's page."""

import sys
import types

from nplm_jax.apps.explorer import feature_map, server, view
from tests.nightly.fuzz import folders as damaged_folders


def test_a_damaged_folder_is_shown_or_refused(folders, monkeypatch):
    def predict(models, _):
        for _, features_VxM in models.word_features():
            feature_map.project(features_VxM)
        view.summarize(models, view.score(models, ['i', 'like']), 3)

    monkeypatch.setitem(sys.modules, 'nicegui', types.ModuleType('nicegui'))
    monkeypatch.setattr(server, 'page_app', predict)
    monkeypatch.setattr(server, 'serve', lambda *given: None)
    calls = {'explore': [['RUN', 'GOOD', '--port=0', '--no_browser']]}
    damaged_folders.search(5, [folders / 'network', folders / 'counts'], calls)
