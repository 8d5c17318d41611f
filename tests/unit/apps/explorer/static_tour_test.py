"""The tour as one file: what it holds, what it computes, what is refused."""

import json
import re
import shutil
import subprocess

import pytest
from helpers import refuses

from nplm_jax.apps.explorer import static_tour
from nplm_jax.apps.explorer.parts import WEB
from nplm_jax.apps.explorer.tour import Tour
from nplm_jax.cli import __main__ as cli

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


@pytest.mark.skipif(not NODE, reason='needs Node.js')
@pytest.mark.parametrize('text', ['i love', 'I hate coffee, and i love', 'zzz milk', ' '])
def test_the_script_computes_what_the_server_does(network, page, text):
    data = re.search(r'^globalThis\.model = .*;$', page, re.MULTILINE)[0]
    asked = f'globalThis.tour.network({json.dumps(text)}).then((answer) => console.log(JSON.stringify(answer)));'
    script = f'{data}\n{(WEB / "static.js").read_text()}\n{asked}'
    done = subprocess.run([NODE, '--input-type=module'], input=script, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
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
