"""Tests the tour's page in a real browser: contexts, hidden units, window widths and dark mode."""

import json
import time

import pytest

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

pytest.importorskip('selenium.webdriver', reason='needs Selenium: pip install selenium')


@pytest.fixture(scope='module')
def browser(toured, browsing, tmp_path_factory):
    with browsing(tmp_path_factory.mktemp('browser')) as driver:
        driver.get(f'{toured[1]}/?text=i+love')
        until(driver, '.word b', lambda x: x[-2:] == ['i', 'love'])
        yield driver


def texts(browser, css):
    return browser.execute_script(
        'return [...document.querySelectorAll(arguments[0])].map(x => x.innerText ?? x.textContent)', css
    )


def until(browser, css, wanted):
    """Waits until the texts of the elements satisfy `wanted`."""
    stop = time.monotonic() + 60
    while not wanted(found := texts(browser, css)):
        assert time.monotonic() < stop, found
        time.sleep(0.1)


def type_text(browser, text):
    field = browser.find_element('css selector', '#text')
    field.clear()
    field.send_keys(text)


def test_what_is_typed_is_shown_at_once_and_a_mistake_is_one_line(browser):
    type_text(browser, 'i hate')
    until(browser, '.word b', lambda x: x[-2:] == ['i', 'hate'])
    until(browser, '#next tr:nth-child(2) td:first-child', lambda x: x == ['milk'])
    type_text(browser, 'zzz <b>love</b>')
    until(browser, '#note', lambda x: 'read as <rare>: zzz' in x[0])
    assert texts(browser, '.word.rare b')[-1] == '<rare>' and not texts(browser, '#note b')
    type_text(browser, ' ')
    until(browser, '#note', lambda x: x == ["text=' ': must contain at least one word"])
    type_text(browser, 'i love')
    until(browser, '#note', lambda x: x == [''])


def test_a_hidden_unit_is_reached_by_the_arrow_keys_and_explained(browser):
    units = browser.find_elements('css selector', '#hidden button')
    units[0].click()
    units[0].send_keys('\ue014')
    until(
        browser,
        '#unit',
        lambda x: '2' in x[0].partition('\n')[0] and 'love' in x[0],
    )
    focused = browser.execute_script('return document.activeElement.ariaLabel')
    assert '2' in focused


def test_the_ngram_stands_beside_it_and_the_curve_is_drawn(browser):
    (order,) = texts(browser, '#orders li')
    assert 'love' in order and '1' in order
    assert browser.find_elements('css selector', '#curve polyline.valid')
    assert texts(browser, '#progress')[0]


def test_a_silent_server_is_named_and_the_next_text_is_shown(browser):
    browser.execute_script('window.answering = fetch; window.fetch = () => Promise.reject(new TypeError("gone"))')
    type_text(browser, 'i hate')
    until(browser, '#note', lambda x: x == ['The tour does not answer; is it still running?'])
    browser.execute_script('window.fetch = window.answering')
    type_text(browser, 'i love')
    until(browser, '.word b', lambda x: x[-2:] == ['i', 'love'])
    until(browser, '#note', lambda x: x == [''])


@pytest.mark.parametrize('width', [1280, 500, 390])
def test_it_never_scrolls_sideways(browser, width):
    size = {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': width < 400}
    browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', size)
    try:
        wide = 'return document.documentElement.scrollWidth - document.documentElement.clientWidth'
        assert browser.execute_script(wide) == 0
    finally:
        browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_the_button_chooses_light_and_dark(browser):
    colours = set()
    for _ in range(3):
        browser.find_element('css selector', '#theme').click()
        colours.add(browser.execute_script('return getComputedStyle(document.body).backgroundColor'))
    assert len(colours) == 2


def test_the_page_asks_nobody_else_and_reports_no_error(browser, toured):
    messages = [json.loads(entry['message'])['message'] for entry in browser.get_log('performance')]
    asked = [m['params']['request']['url'] for m in messages if m['method'] == 'Network.requestWillBeSent']
    asked = [url for url in asked if url.startswith(('http', 'ws'))]
    assert len(asked) > 5 and all(url.startswith(toured[1]) for url in asked)
    errors = [e['message'] for e in browser.get_log('browser')]
    assert all('400' in message and '/network' in message for message in errors)  # the empty context


def test_a_run_in_training_is_followed_from_its_initial_numbers_to_its_best(serve, browsing, tmp_path):
    keys = {'train.epochs': 30, 'train.checkpoint_every': 30, 'train.evaluate_every': 60}
    folder = tmp_path / 'run'
    experiment.run(config_lib.override(sentences.get_config(), keys), folder)
    (folder / 'results.json').unlink()
    checkpoints, later = folder / 'checkpoints', tmp_path / 'later'
    later.mkdir()
    for step in ('60', '90'):
        (checkpoints / step).rename(later / step)
    cells = 'return [...document.querySelectorAll("#features .cells div")].map(x => x.title).join()'
    with serve(folder, switches=('--tour',)) as (_, address), browsing(tmp_path / 'browser') as driver:
        driver.get(f'{address}/?text=i+love')
        until(driver, '#progress', lambda x: 'not validated yet: the cells show the initial numbers.' in x[0])
        before = driver.execute_script(cells)
        (later / '60').rename(checkpoints / '60')
        until(driver, '#progress', lambda x: 'the best validation so far, update 60.' in x[0])
        assert driver.execute_script(cells) != before
