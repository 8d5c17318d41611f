"""Tests that the visitors simulated by tools.soak know the page."""

import importlib.util
import json
import sys
import types

import pytest

from nplm_jax.apps.explorer.page import TEXT_LABEL


def test_a_simulated_visitor_finds_the_text_field(monkeypatch):
    for name in ('aiohttp', 'socketio'):
        if importlib.util.find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    visitors = importlib.import_module('tools.soak.visitors')
    field = {'props': {'label': TEXT_LABEL}, 'events': [{'type': 'update:value', 'listener_id': 'a1'}]}
    elements = json.dumps({'7': {'props': {'label': 'a word'}}, '8': field})
    page = f"parseElements(String.raw`{elements}`); query = {{'client_id': 'c1'}}"
    assert visitors._text_field(page) == ('c1', 8, 'a1')
    with pytest.raises(ValueError, match='field'):
        visitors._text_field(page.replace(TEXT_LABEL, 'another'))
