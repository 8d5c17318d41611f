"""Tests the export to Hugging Face transformers of networks over pieces, for texts in any language."""

import json

import numpy as np
import pytest
from language_runs import HOSTILE, make_runs
from texts import GERMAN, SCRIPTS

from nplm_jax.apps.export import huggingface
from nplm_jax.data.line_start import LineStart
from nplm_jax.runs import loading


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), ['network'])


def test_a_line_of_hugging_faces_model_begins_and_ends_with_the_line_end(runs, tmp_path):
    pytest.importorskip('safetensors', reason='pip install safetensors')
    loaded = loading.load(runs / 'network')
    settings, words, model = loaded.settings, loaded.vocabulary, loaded.model
    huggingface.write_folder(model, words, settings, tmp_path / 'hf')
    read = lambda name: json.loads((tmp_path / 'hf' / name).read_text())  # noqa: E731
    (line_end,) = LineStart.of(words).prefix
    generation = read('generation_config.json')
    assert words.words[line_end] == 'Ċ' and generation['bos_token_id'] == generation['eos_token_id'] == line_end
    assert {'bos_token', 'eos_token'}.isdisjoint(read('tokenizer_config.json'))


def test_hugging_faces_model_of_pieces_gives_the_same_ids_and_probabilities(runs, tmp_path, monkeypatch):
    monkeypatch.setenv('HF_MODULES_CACHE', str(tmp_path / 'modules'))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    torch = pytest.importorskip('torch', reason='pip install torch')
    transformers = pytest.importorskip('transformers', reason='pip install transformers')
    loaded = loading.load(runs / 'network')
    settings, words, model = loaded.settings, loaded.vocabulary, loaded.model
    huggingface.write_folder(model, words, settings, tmp_path / 'hf')
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'hf', trust_remote_code=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'hf', trust_remote_code=True)
    text = f'{GERMAN}{HOSTILE}\n{"".join(SCRIPTS.values())}'
    ids = tokenizer(text, add_special_tokens=False)['input_ids']
    assert ids == words.encode(words.tokenize(text)).tolist() and tokenizer.decode(ids) == text
    with torch.no_grad():
        log_p_TxV = theirs(torch.tensor([ids])).logits.log_softmax(-1)[0].numpy()
    np.testing.assert_allclose(log_p_TxV[np.arange(len(ids) - 1), ids[1:]], model.score(np.array(ids))[1:], atol=1e-5)
