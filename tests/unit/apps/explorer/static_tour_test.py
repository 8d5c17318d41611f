"""Tests the tour as a single file: its content, its computations and rejected models."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from helpers import refuses

from configs import text as text_config
from nplm_jax.apps.explorer import static_tour
from nplm_jax.apps.explorer.parts import WEB
from nplm_jax.apps.explorer.tour import Tour
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

NODE = shutil.which('node')


@pytest.fixture(scope='module')
def network(folders):
    return Tour.load([str(folders / 'network')])


@pytest.fixture(scope='module')
def page(network):
    return static_tour.render(network)


def test_the_file_needs_no_other(page):
    assert page.count('<style>') == 2 and page.count('</script>') == page.count('<script') == 1
    assert not re.findall(r'\b(?:src|href)="(?!data:)', page)
    assert 'http' not in page.replace('http://www.w3.org/2000/svg', '')


def test_the_file_does_not_depend_on_the_locale(network, page, monkeypatch):
    read_text = pathlib.Path.read_text
    monkeypatch.setattr(pathlib.Path, 'read_text', lambda path, encoding='latin-1': read_text(path, encoding))
    assert static_tour.render(network) == page


@pytest.fixture(scope='module')
def cased(tmp_path_factory):
    """The tour of a network whose vocabulary has upper and lower case, possessives and numbers."""
    root = tmp_path_factory.mktemp('cased')
    (root / 'text').write_text("The dog's bone costs 7 dollars. Ann said: the Dog likes Ann's bone.\n\n" * 40)
    changes = {'corpus.path': str(root / 'text'), 'corpus.lowercase': False, 'corpus.numbers': True, 'model.n': 5}
    changes |= {'model.m': 4, 'model.h': 5, 'train.epochs': 1, 'train.batch_size': 32}
    experiment.run(config_lib.override(text_config.get_config(), changes), root / 'run')
    return Tour.load([str(root / 'run')])


@pytest.fixture(scope='module')
def spaced(tmp_path_factory):
    """The tour of a network of words that were split off punctuation before, as in Brown."""
    root = tmp_path_factory.mktemp('spaced')
    (root / 'text').write_text("The dog costs $ 7 ; Mr. Ann do n't say `` the dog -- no , the bone '' .\n\n" * 40)
    changes = {'corpus.path': str(root / 'text'), 'corpus.tokens': 'whitespace', 'model.n': 7, 'model.m': 4}
    changes |= {'model.h': 5, 'train.epochs': 1, 'train.batch_size': 32}
    experiment.run(config_lib.override(text_config.get_config(), changes), root / 'run')
    tour = Tour.load([str(root / 'run')])
    words = tour.models.vocabulary
    tokenizer = dataclasses.replace(words.tokenizer, split_punctuation=True, match_quotes=True)
    words = dataclasses.replace(words, tokenizer=tokenizer)
    return dataclasses.replace(tour, models=dataclasses.replace(tour.models, vocabulary=words))


def ask(page, text):
    """Returns the output of the script in a page for a text."""
    data = re.search(r'^globalThis\.model = .*;$', page, re.MULTILINE)[0]
    asked = f'globalThis.tour.network({json.dumps(text)}).then((answer) => console.log(JSON.stringify(answer)));'
    script = f'{data}\n{(WEB / "static.js").read_text()}\n{asked}'
    done = subprocess.run([NODE, '--input-type=module'], input=script, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(not NODE, reason='needs Node.js')
@pytest.mark.parametrize(
    'text',
    [
        *("The Dog's bone costs 3.5 dollars.", 'THE dog’s bone', '<p> The <s> bone', '$7.50: the Dog', "ann's dog's"),
        *('the bone² Dog', 'the bone\u200cbone Dog', 'the\x85Dog', '\ufeffthe Dog'),
    ],
)
@pytest.mark.parametrize('kind', ['', 'whitespace'])
def test_the_script_splits_a_text_as_the_server_does(cased, text, kind):
    found, expected = ask(static_tour.render(cased, kind), text), cased.show(cased.encode(text, kind))
    assert [row['word'] for row in found['words']] == [row['word'] for row in expected['words']]
    assert bool(found['note']) == bool(expected['note'])


@pytest.mark.skipif(not NODE, reason='needs Node.js')
@pytest.mark.parametrize(
    'text',
    ['costs $500 bone', 'the/dog.', '("Mr. Ann,"', 'don’t—say “no”', '... -- the (dog...).', 'MR.; --no', "``dog''"],
)
def test_the_script_splits_punctuation_off_words_as_the_server_does(spaced, text):
    found, expected = ask(static_tour.render(spaced), text), spaced.show(spaced.encode(text, ''))
    assert [row['word'] for row in found['words']] == [row['word'] for row in expected['words']]


@pytest.mark.skipif(not NODE, reason='needs Node.js')
@pytest.mark.parametrize('text', ['i love', 'I hate coffee, and i love', 'zzz milk', ' '])
def test_the_script_computes_what_the_server_does(network, page, text):
    found = ask(page, text)
    if not text.strip():
        assert 'word' in found['error']
        return
    expected = network.show(network.encode(text, ''))
    assert [row['word'] for row in found['words']] == [row['word'] for row in expected['words']]
    assert found['hidden'] == pytest.approx(expected['hidden'], abs=5e-3)
    for mine, theirs in zip(found['drives'], expected['drives'], strict=True):
        assert mine == pytest.approx(theirs, abs=2e-2)
    p = {row['word']: row['p'] for row in found['next']}
    assert p == pytest.approx({row['word']: row['p'] for row in expected['next']}, rel=2e-2, abs=1e-6)
    assert bool(found['note']) == bool(expected['note'])


def test_the_command_writes_it_and_keeps_what_exists(folders, tmp_path, page, lines):
    path = tmp_path / 'tour.html'
    cli.main(['explore', str(folders / 'network'), '--tour', f'--output={path}'])
    assert path.read_text() == page and str(path) in lines()[0][0]
    for arguments in ([f'--output={path}', '--tour'], [f'--output={tmp_path}/other.html']):
        with pytest.raises(SystemExit) as stop:
            cli.main(['explore', str(folders / 'network'), *arguments])
        assert stop.value.code == 2 and '--output=' in lines()[1][0]
    assert path.read_text() == page


def test_it_takes_one_finished_network_of_words(folders, tmp_path):
    with refuses('--tour'):
        static_tour.render(Tour.load([str(folders / 'network'), str(folders / 'counts')]))
    shutil.copytree(folders / 'network', tmp_path / 'run')
    (tmp_path / 'run' / 'results.json').unlink()
    with refuses('RUN'):
        static_tour.render(Tour.load([str(tmp_path / 'run')]))
