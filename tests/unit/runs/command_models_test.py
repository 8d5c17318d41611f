"""Tests commands with a user's text in a script without spaces between words."""

import io
import json
import random
import sys

import pytest
import unspaced_texts

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

PROMPTS = {'chinese': '那只 猫 喜欢', 'japanese': 'この 猫 は 犬', 'thai': 'แมว ตัวนี้ ชอบ'}
RUNS = {'characters': ('', {'corpus.tokens': 'characters'}), 'words': ('_words', {'corpus.tokens': 'whitespace'})}
RUNS['segmented'] = '_words', {'corpus.tokens': 'pieces', 'corpus.pieces': 310}


@pytest.fixture(scope='module', params=PROMPTS)
def script(request):
    return request.param


@pytest.fixture(scope='module')
def run(script, tmp_path_factory):
    """Returns a function that trains a run and returns its folder, by its name in RUNS."""
    root, made = tmp_path_factory.mktemp(script), {}
    unspaced_texts.write(root, random.Random(1))

    def train(name):
        if name not in made:
            suffix, changes = RUNS[name]
            config = config_lib.override(text_config.get_config('modified_kneser_ney_5'), changes)
            config.corpus.path = str(root / f'{script}{suffix}.txt')
            experiment.run(config, root / name)
            made[name] = root / name
        return made[name]

    return train


@pytest.mark.parametrize(
    'command', [('next',), ('next', '--json'), ('generate', '--samples=2'), ('generate', '--beam=2')]
)
def test_a_prompt_has_the_same_answer_with_and_without_spaces(command, script, run, nplm_command):
    name, *flags = command
    segmented, joined = (
        nplm_command(name, run('characters'), *flags, f'--prompt={prompt}')
        for prompt in (PROMPTS[script], PROMPTS[script].replace(' ', ''))
    )
    assert segmented == joined and segmented[1] == []


def test_a_prompt_is_read_as_the_training_text_was_segmented(script, run, nplm_command):
    for name in ('words', 'segmented'):
        shown, stderr = nplm_command('generate', run(name), '--samples=1', f'--prompt={PROMPTS[script]}')
        assert shown[0].startswith(PROMPTS[script]) and stderr == []


def test_a_prompt_without_blanks_is_refused_by_words_and_warned_of_by_pieces(script, run, nplm_command, lines):
    prompt = f'--prompt={PROMPTS[script].replace(" ", "") * 2}'
    _, stderr = nplm_command('next', run('segmented'), prompt)
    (line,) = stderr
    assert line.startswith('warning: ')
    with pytest.raises(SystemExit):
        nplm_command('next', run('words'), prompt)
    assert len(lines()[1]) == 1


def test_a_segmented_text_is_scored_as_the_text_that_is_written(script, run, monkeypatch, nplm_command):
    prompt = PROMPTS[script]
    found = []
    for text in (prompt, prompt.replace(' ', '')):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        found.append(nplm_command('score', run('characters')))
    assert found[0] == found[1]


def test_a_segmented_text_is_compared_by_the_bytes_that_are_read(script, run, tmp_path, nplm_command):
    found = []
    for text in (PROMPTS[script], PROMPTS[script].replace(' ', '')):
        (tmp_path / 'text').write_text(text, encoding='utf-8')
        out, _ = nplm_command('compare', run('characters'), f'--text={tmp_path / "text"}', '--json')
        found.append(json.loads('\n'.join(out))['text'])
    assert found[0] == found[1] and found[0][0]['bits_per_byte'] > 0


def test_no_run_is_best_if_only_some_runs_read_the_spaces(script, run, tmp_path, nplm_command):
    (tmp_path / 'text').write_text(PROMPTS[script], encoding='utf-8')
    folders = run('characters'), run('segmented')
    (header, _, *rows), warnings = nplm_command('compare', *folders, f'--text={tmp_path / "text"}')
    assert sum(warning.startswith('bits per byte are not comparable') for warning in warnings) == 1
    column = [cell.strip() for cell in header.split('|')].index('text bits/byte')
    assert not any('*' in row.split('|')[column] for row in rows[:2])
