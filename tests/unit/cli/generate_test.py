"""Tests the output of `nplm generate`: text, JSON, the start after the paragraph mark, and quotation marks."""

import functools
import json

import numpy as np
import pytest
from helpers import numbers, one_line, refuses

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.inference import generation
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import experiment, loading


@pytest.fixture(scope='module')
def quotes(tmp_path_factory):
    """A model of a text with straight quotation marks and apostrophes, which reproduces the text word by word."""
    root = tmp_path_factory.mktemp('quotes')
    (root / 'text').write_text('\n\n'.join(['"I don\'t ," said kate\'s aunt ( twice ) .'] * 30))
    config = text_config.get_config()
    config.corpus.path, config.corpus.tokens, config.corpus.min_count = str(root / 'text'), 'words', 1
    config = config_lib.override(config, {'model.family': 'backoff', 'model.n': 4})
    experiment.run(config, root / 'run')
    return root / 'run'


@pytest.fixture
def call(nplm_command):
    return functools.partial(nplm_command, 'generate')


def test_detokenized_text_reads_as_the_corpus_did(quotes, call):
    flags = '--greedy', '--words=14', '--prompt='
    assert call(quotes, *flags)[0] == ['" i don\'t , " said kate \'s aunt ( twice ) . <p>']
    assert call(quotes, *flags, '--detokenize')[0] == ['"i don\'t," said kate\'s aunt (twice).']


@pytest.mark.parametrize('prompt', ['“I don’t', '"I don\'t'])
def test_a_prompts_curly_quotation_marks_are_those_of_the_vocabulary(quotes, call, prompt):
    assert call(quotes, f'--prompt={prompt}', '--greedy', '--words=2') == (['" i don\'t , "'], [])


@pytest.mark.parametrize('command', ['generate', 'next'])
def test_a_text_in_place_of_a_run_is_answered_by_the_flag_for_it(quotes, nplm_command, capsys, command):
    with pytest.raises(SystemExit, match='^2$'):
        nplm_command(command, quotes, 'the jury said')
    assert "--prompt='the jury said'" in one_line(capsys.readouterr().err, 'RUN')


def test_a_text_begins_as_a_paragraph(quotes):
    models = loaded_models.load_models([str(quotes)])
    loaded = loading.load(quotes)
    words, model = loaded.vocabulary, loaded.model
    ids_T = generation.sample(model, words.encode(['<p>']), 3, 1, generation.GREEDY)[0]
    again_T = generation.sample(model, models.encode_prompt([]), 3, 1, generation.GREEDY)[0]
    np.testing.assert_array_equal(ids_T, again_T)
    assert words.decode(ids_T) == ['"', 'i', "don't"]


def test_json_has_the_words_and_a_beams_probabilities(quotes, call):
    (output,), _ = call(quotes, '--beam=2', '--words=3', '--prompt="I', '--json')
    found = json.loads(output)
    assert found['prompt'] == ['"', 'i'] and found['texts'][0]['words'] == ['"', 'i', "don't", ',', '"']
    assert found['texts'][0]['log10_p'] == pytest.approx(0, abs=1e-6)
    (output,), _ = call(quotes, '--samples=3', '--words=3', '--json')
    assert len(json.loads(output)['texts']) == 3 and 'log10_p' not in json.loads(output)['texts'][0]


def test_unknown_words_are_counted_and_named(quotes):
    models = loaded_models.load_models([str(quotes)])
    note = models.describe_unknown(['aunt', 'zzz', '.', 'zzz'])
    assert numbers(note) == ['2', '4', '50.0'] and note.endswith(': zzz')
    many = models.describe_unknown([f'z{i}' for i in range(5000)])
    assert ' z11 ' in many and ' z12' not in many and numbers(many)[-1] == '4,988'


def test_a_prompt_of_other_bytes_is_one_line(quotes):
    with refuses('--prompt'):
        loaded_models.load_models([str(quotes)]).tokenize_prompt('i \udcff', 'auto')
