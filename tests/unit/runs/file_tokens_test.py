"""Tests that a run with the tokens of another model keeps the tokenizer file and reports the sizes of the text."""

import io
import json
import math
import sys

import pytest
import tokenizers
from helpers import refuses
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, preparation
from nplm_jax.data.stream import RARE
from nplm_jax.data.tokenizers.token_text import spells
from nplm_jax.reporting.results import notes
from nplm_jax.runs import experiment, run_inputs

LINES = [f'{a} {b} {c}' for a in ('The dog', 'A cat') for b in ('ran', 'is', 'said') for c in ('over there', 'now')] * 4


def save(path, normalizer=None, size=40):
    learned = tokenizers.Tokenizer(models.BPE(unk_token='<unk>'))
    learned.pre_tokenizer, learned.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    if normalizer:
        learned.normalizer = normalizer
    learned.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=size, special_tokens=['<unk>'], show_progress=False)
    )
    learned.save(str(path))


def settings_of(folder, words='interpolated'):
    (folder / 'text.txt').write_text('\n'.join(LINES) + '\n')
    config = text_config.get_config(f'{words},{folder / "tokens.json"}')
    changes = {'corpus.path': str(folder / 'text.txt'), 'corpus.paragraphs': 'lines', 'name': 'run'}
    return config_lib.from_config(config_lib.override(config, changes))


@pytest.fixture(scope='module')
def exact(tmp_path_factory):
    save((folder := tmp_path_factory.mktemp('exact')) / 'tokens.json')
    return folder, experiment.run(settings_of(folder), folder / 'run')


@pytest.fixture(scope='module')
def lowered(tmp_path_factory):
    save((folder := tmp_path_factory.mktemp('lowered')) / 'tokens.json', normalizers.Lowercase())
    return folder, experiment.run(settings_of(folder), folder / 'run')


def test_results_have_numbers_per_byte_only_of_a_text_that_the_tokens_spell(exact, lowered):
    _, results = exact
    size = results['sizes']['test']
    bits = size['tokens'] * math.log2(results['perplexity']['test']) / size['utf8_bytes']
    assert math.isclose(results['bits_per_byte']['test'], bits)
    _, without = lowered
    assert without['sizes'] == {} and not without.keys() & {
        'perplexity_per_word',
        'bits_per_character',
        'bits_per_byte',
    }
    assert len(notes(without)) == len(notes({**results, 'bits_per_byte': {}})) + 1


@pytest.mark.parametrize(
    'text, is_spelled', [('a  Dog\n', True), ('a dog', False), ('a Dog.', False), ('a Dogs', True)]
)
def test_tokens_spell_a_text_that_differs_from_them_in_white_space_only(exact, text, is_spelled):
    folder, _ = exact
    tokenizer = corpora.make_tokenizer(settings_of(folder).corpus)
    tokens = ['▁', 'a', '▁', 'D', 'o', 'g', *([RARE] if text.endswith('s') else [])]
    assert spells(tokenizer, [(text, tokens)]) == is_spelled


def test_a_cached_text_keeps_whether_the_tokens_spell_it(lowered, monkeypatch, tmp_path):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    monkeypatch.setattr(preparation, 'MIN_CACHED_BYTES', 1)
    folder, _ = lowered
    assert [corpora.load(settings_of(folder).corpus).is_spelled for _ in range(2)] == [False, False]


def test_a_score_has_numbers_per_byte_only_of_a_text_that_the_tokens_spell(exact, lowered, nplm_command, monkeypatch):
    def keys(folder, text):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        return json.loads('\n'.join(nplm_command('score', folder / 'run', '--summary', '--json')[0])).keys()

    for text, folder, is_spelled in (
        ('The cat', exact[0], True),
        ('The cat', lowered[0], False),
        ('a cat', lowered[0], True),
    ):
        assert ('bits_per_byte' in keys(folder, text)) == is_spelled


def test_bits_per_byte_are_compared_only_if_the_tokens_spell_the_text(exact, lowered, nplm_command, tmp_path):
    (tmp_path / 'essay.txt').write_text('The cat\nA dog\n')
    runs = [folder / 'run' for folder, _ in (exact, lowered)]
    shown = nplm_command('compare', *runs, f'--text={tmp_path / "essay.txt"}', '--json')[0]
    first, second = json.loads('\n'.join(shown))['text']
    assert first['bits_per_byte'] > 0 and second['bits_per_byte'] is None


def test_words_are_counted_in_a_generated_text(exact, nplm_command):
    folder, _ = exact
    shown = nplm_command('generate', folder / 'run', '--words=3', '--samples=4', '--json')[0]
    texts = json.loads('\n'.join(shown))['texts']
    assert all(len(text['text'].split()) == 3 < len(text['words']) for text in texts)


def test_a_changed_file_is_refused_and_a_missing_one_is_not_needed(tmp_path):
    save(tmp_path / 'tokens.json')
    settings = settings_of(tmp_path)
    results = experiment.run(settings, tmp_path / 'run')
    digest = run_inputs.model_digests(settings)['corpus.tokens']
    assert run_inputs.read_record(tmp_path / 'run')['code'] == {'corpus.tokens': digest}
    save(tmp_path / 'tokens.json', size=38)
    with refuses('--workdir'):
        experiment.run(settings, tmp_path / 'run')
    (tmp_path / 'tokens.json').unlink()
    assert experiment.run(settings, tmp_path / 'run') == results


def test_a_missing_file_is_refused(tmp_path):
    with refuses(f"corpus.tokens='{tmp_path / 'tokens.json'}'"):
        experiment.run(settings_of(tmp_path), tmp_path / 'run')
