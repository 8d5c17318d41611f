"""What the explorer shows against direct evaluation; the page itself in a real browser."""

import json
import math
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import numpy as np
import pytest

from nplm_jax.cli import __main__ as cli
from nplm_jax.cli import loaded_models
from nplm_jax.cli.explorer import view
from nplm_jax.inference import embeddings, generation
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.models.ngram.kneser_ney.DiscountWarning')

ROOT = pathlib.Path(__file__).parents[2]
BROWSER, DRIVER = shutil.which('chromium'), shutil.which('chromedriver')


@pytest.fixture(scope='module')
def models(folders):
    return loaded_models.load_models([str(folders / 'network'), str(folders / 'counts')])


def p(model, models, *words):
    return np.exp(model.next_word(models.vocabulary.encode(words)[None])[0].astype(np.float64))


def test_the_likeliest_next_words_of_each_model_and_their_mixture(models):
    mixed, network, counts = view.predict(models, ['i', 'love'], 3)
    assert [x.name for x in (mixed, network, counts)] == ['mixture', 'network', 'counts']
    assert [x.next_words[0][0] for x in (mixed, network, counts)] == ['coffee'] * 3
    for prediction, model in zip((network, counts), models.models):
        expected = p(model, models, 'i', 'love')
        assert [x for _, x in prediction.next_words] == pytest.approx(sorted(expected, reverse=True)[:3], abs=1e-6)
        assert all(x == pytest.approx(expected[models.vocabulary.ids[w]]) for w, x in prediction.next_words)
    both = np.mean([p(model, models, 'i', 'love') for model in models.models], axis=0)
    assert [x for _, x in mixed.next_words] == pytest.approx(sorted(both, reverse=True)[:3], abs=1e-6)


@pytest.mark.parametrize('words', [[], ['i'], ['i', 'zzz', 'milk'], ['i', 'like', 'dog'] * 100])
def test_each_words_surprise_is_its_next_word_probability(models, words):
    for prediction, (_, model) in zip(view.predict(models, words, 1), models.with_mixture()):
        ids = models.vocabulary.encode(words)
        expected = [-math.log2(p(model, models, *words[:t])[i]) for t, i in enumerate(ids[:12])]
        assert len(prediction.bits_T) == len(words)
        np.testing.assert_allclose(prediction.bits_T[:12], expected, rtol=0, atol=1e-4)
        mean = prediction.perplexity
        assert math.isnan(mean) if not words else mean == pytest.approx(2 ** prediction.bits_T.mean())


def test_one_model_has_no_mixture_beside_it_and_more_words_than_there_are_are_all(folders):
    alone = loaded_models.load_models([str(folders / 'network')])
    (prediction,) = view.predict(alone, [], 99)
    assert prediction.name == 'network' and len(prediction.next_words) == len(alone.vocabulary)
    assert sum(x for _, x in prediction.next_words) == pytest.approx(1, abs=1e-5)
    with pytest.raises(BadInput, match='k=0: must be 1 or more'):
        view.predict(alone, [], 0)


def test_neighbours_are_the_networks_and_none_of_an_unknown_word(models):
    ((name, near),) = view.neighbours(models, 'love', 3)
    ids, cosines = embeddings.neighbours(models.models[0].params['C_VxM'], [models.vocabulary.ids['love']], 3)
    assert name == 'network' and [w for w, _ in near] == models.vocabulary.decode(ids[0])
    assert [c for _, c in near] == pytest.approx(cosines[0])
    assert view.neighbours(models, 'zzz', 3) == view.neighbours(models, '', 3) == []


@pytest.mark.parametrize('source', [0, 1])
def test_each_model_continues_a_text_as_generate_does(models, source):
    found = view.continue_text(models, source, ['i', 'love'], 4, 2, generation.Choice(top_k=2), 3)
    model = [models.mixture, models.models[0]][source]
    ids = generation.sample(model, models.vocabulary.encode(['i', 'love']), 4, 2, generation.Choice(top_k=2), 3)
    assert found == [' '.join(models.vocabulary.decode(x)) for x in ids]


# --- the command -----------------------------------------------------------------------------------------

WRONG = [
    (['--workdir=/nowhere'], "--workdir='/nowhere': no finished run lies there"),
    (['--workdir=NETWORK', '--workdir=OTHER'], 'is not that of'),
    (['--workdir=NETWORK', '--port=70000'], '--port=70000: must be 0 to 65535'),
    (['--workdir=NETWORK', '--host=256.0.0.1', '--port=0'], "--host='256.0.0.1' --port=0: cannot listen there"),
    ([], "RUN='': give the folder of a run: nplm explore RUN"),
]


@pytest.fixture
def call(lines):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(['explore', '--no_browser', *arguments])
        assert stop.value.code == 2
        return lines()

    return call


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, folders, call, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nplm_jax.cli.explorer.server', object())  # the toolkit may be missing
    runs = {'NETWORK': str(folders / 'network'), 'OTHER': str(folders / 'other')}
    for name, folder in runs.items():
        arguments = [a.replace(name, folder) for a in arguments]
    stdout, stderr = call(*arguments)
    assert not stdout and len(stderr) == 1 and message in stderr[0]


def test_a_port_that_is_taken_is_named(folders, call):
    with socket.create_server(('127.0.0.1', 0)) as listener:
        port = listener.getsockname()[1]
        _, stderr = call(f'--workdir={folders / "network"}', f'--port={port}')
    assert len(stderr) == 1
    assert f"--host='127.0.0.1' --port={port}: cannot listen there (Address already in use" in stderr[0]


def test_a_missing_toolkit_is_named(folders, call, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nicegui', None)
    monkeypatch.delitem(sys.modules, 'nplm_jax.cli.explorer.server', raising=False)
    assert 'needs NiceGUI: pip install nicegui' in call(f'--workdir={folders}/network', '--port=0')[1][0]


# --- in a browser ----------------------------------------------------------------------------------------

FLAGS = (  # a new browser in a machine without internet, as any user
    *('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--window-size=1200,1300'),
    *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
)


@pytest.fixture(scope='module')
def served(folders):
    """The process that serves both models, and its address."""
    pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')
    flags = [f'--workdir={folders / name}' for name in ('network', 'counts')]
    line = [sys.executable, '-m', 'nplm_jax.cli', 'explore', *flags, '--port=0', '--no_browser']
    env = {**os.environ, 'PYTHONWARNINGS': 'ignore'}  # about so little text
    env.pop('PYTEST_CURRENT_TEST', None)  # NiceGUI looks at it
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    with subprocess.Popen(line, cwd=ROOT, env=env, text=True, **pipes) as process:
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.kill()


@pytest.fixture(scope='module')
def browser(served, tmp_path_factory):
    """Chromium at that address, which keeps a log of all it asks for."""
    if not (BROWSER and DRIVER):
        pytest.skip('needs chromium and chromedriver')
    webdriver = pytest.importorskip('selenium.webdriver', reason='needs Selenium: pip install selenium')
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f'--user-data-dir={tmp_path_factory.mktemp("browser")}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'performance': 'ALL', 'browser': 'ALL'})
    browser = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    browser.get(served[1])
    yield browser
    browser.quit()


def texts(browser, css):
    """What the elements read, all at one moment."""
    return browser.execute_script('return [...document.querySelectorAll(arguments[0])].map(x => x.innerText)', css)


def until(browser, css, wanted):
    """Waits until the elements read as `wanted` says."""
    stop = time.monotonic() + 60
    while not wanted(found := texts(browser, css)):
        assert time.monotonic() < stop, f'{css}: {found}'
        time.sleep(0.1)


def field(browser, label):
    return browser.find_element('css selector', f'input[aria-label="{label}"]')


def retype(browser, label, text):
    """Types over what the field holds."""
    found = field(browser, label)
    found.send_keys('\ue003' * len(found.get_attribute('value')) + text)  # backspaces first


def click(browser, css, text):
    [found] = [x for x in browser.find_elements('css selector', css) if x.text == text]
    found.click()


@pytest.mark.browser
def test_a_visitor_types_clicks_and_reads(browser, tmp_path):
    until(browser, '.next .name', lambda x: x == ['mixture', 'network', 'counts'])
    retype(browser, 'a beginning', 'i zzz')
    until(browser, '.note', lambda x: x == ['not in the vocabulary, read as <rare>: zzz'])
    retype(browser, 'a beginning', 'i love')
    until(browser, '.surprise', lambda x: x == ['i', 'love'] * 3)
    assert texts(browser, '.note') == texts(browser, '.neighbours') == []
    assert [c.split('\n')[1] for c in texts(browser, '.next')] == ['coffee'] * 3
    click(browser, '.next:nth-child(2) .word', 'coffee')
    until(browser, '.surprise', lambda x: x == ['i', 'love', 'coffee'] * 3)
    assert field(browser, 'a beginning').get_attribute('value') == 'i love coffee'
    assert field(browser, 'a word').get_attribute('value') == 'coffee'
    until(browser, '.neighbours .name', lambda x: x == ['network'])
    nearest = texts(browser, '.neighbours .word')
    assert len(nearest) == 9 and 'coffee' not in nearest
    click(browser, '.neighbours .word', nearest[0])
    until(browser, '.neighbours .word', lambda x: 'coffee' in x and nearest[0] not in x)
    assert browser.save_screenshot(str(tmp_path / 'explorer.png'))


@pytest.mark.browser
def test_a_visitor_lets_a_model_continue_the_text(browser):
    retype(browser, 'a beginning', 'i hate')
    until(browser, '.surprise', lambda x: x == ['i', 'hate'] * 3)
    retype(browser, 'words', '1')
    retype(browser, 'top k', '1')
    click(browser, 'button', 'write')
    until(browser, '.written', lambda x: x == ['… milk'] * 3)
    retype(browser, 'temperature', '')
    click(browser, 'button', 'write')
    until(browser, '.note', lambda x: x == ['temperature=None: give a number'])


@pytest.mark.browser
def test_the_page_asks_nobody_else_and_reports_no_error(browser, served):
    messages = [json.loads(entry['message'])['message'] for entry in browser.get_log('performance')]
    asked = [m['params']['request']['url'] for m in messages if m['method'] == 'Network.requestWillBeSent']
    asked += [m['params']['url'] for m in messages if m['method'] == 'Network.webSocketCreated']
    others = [url for url in asked if urllib.parse.urlsplit(url).netloc != urllib.parse.urlsplit(served[1]).netloc]
    assert len(asked) > 5 and not [url for url in others if url.startswith(('http', 'ws'))]
    assert browser.get_log('browser') == []


@pytest.mark.browser
def test_ctrl_c_ends_it_quietly(served):
    process, _ = served
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (0, '', '')
