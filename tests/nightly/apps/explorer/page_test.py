"""Tests the explorer's page in a real browser: mouse, keyboard, links, dark mode and small screens."""

import json
import time
import urllib.parse

import pytest

from configs import text as text_config
from nplm_jax.apps.explorer.state import PageState
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

webdriver = pytest.importorskip('selenium.webdriver', reason='needs Selenium: pip install selenium')
pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')

PHONE = {'width': 390, 'height': 844, 'deviceScaleFactor': 2, 'mobile': True}
TEXT, WORD = 'textarea[aria-label="beginning of a text"]', 'input[aria-label="a word"]'
BODY = 'return getComputedStyle(document.body).backgroundColor'


@pytest.fixture(scope='module')
def driver(served, browsing, tmp_path_factory):
    """Chromium with a log of all requests."""
    with browsing(tmp_path_factory.mktemp('browser')) as driver:
        yield driver


@pytest.fixture
def browser(driver, served):
    """A browser with the page of a new visitor."""
    visit(driver, served)
    return driver


def visit(driver, served, query=''):
    driver.get(f'{served[1]}/?{query}')
    until(driver, '.next .name', lambda x: x == ['mixture', 'network', 'counts'])


def texts(browser, css):
    """Returns the texts of the elements, all read at the same moment."""
    return browser.execute_script(
        'return [...document.querySelectorAll(arguments[0])].map(x => x.innerText ?? x.textContent)', css
    )


def wait(ask, wanted):
    """Waits until the result of `ask` satisfies `wanted`."""
    stop = time.monotonic() + 60
    while not wanted(found := ask()):
        assert time.monotonic() < stop, found
        time.sleep(0.1)
    return found


def until(browser, css, wanted):
    """Waits until the texts of the elements satisfy `wanted`."""
    return wait(lambda: texts(browser, css), wanted)


def field(browser, label):
    return browser.find_element('css selector', f'input[aria-label="{label}"]')


def text(browser):
    return browser.find_element('css selector', TEXT).get_attribute('value')


def retype(found, typed):
    """Replaces the content of a field by typing."""
    found.send_keys('\ue003' * len(found.get_attribute('value')) + typed)  # backspaces first


def type_text(browser, typed):
    """Replaces the text by typing, and waits until the page has read it."""
    retype(browser.find_element('css selector', TEXT), typed)
    until(browser, '.surprise', lambda x: x == typed.split() * 3)


def press(browser, *keys):
    """Presses keys outside the input fields."""
    browser.execute_script('document.activeElement.blur()')
    webdriver.ActionChains(browser).send_keys(*keys).perform()


def click(browser, css, text):
    [found] = [
        x for x in browser.find_elements('css selector', css) if x.text.split('\n')[-1] == text
    ]  # icons are text
    browser.execute_script('arguments[0].scrollIntoView({block: "center"})', found)
    found.click()


def query(browser):
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(browser.current_url).query))


SCRIPT = '<img/src=x/onerror=pwned=1>'  # a single word, because it contains no space


def test_words_and_names_that_are_scripts_are_shown_and_not_run(driver, serve, tmp_path):
    words = [
        SCRIPT,
        '{{pwned=1}}',
        '${pwned=1}',
        '`+(pwned=1)+`',
        '"onclick="pwned=1',
        '</script><script>pwned=1</script>',
    ]
    (tmp_path / 'text').write_text(' '.join(words * 40))
    config = text_config.get_config()
    config.corpus.path, config.corpus.boundary_tokens, config.corpus.tokens = (
        str(tmp_path / 'text'),
        False,
        'whitespace',
    )
    config.corpus.lowercase, config.train.epochs, config.model.h, config.model.n = False, 1, 3, 3
    names = ['" :style="pwned=1" x="', '<img src=x onerror="pwned=1">']
    for name in names:
        experiment.run(config.copy_and_resolve_references(), tmp_path / name)
        config = config_lib.override(config, {'model.family': 'add_delta'})
    with serve(*(tmp_path / name for name in names)) as served:
        query = urllib.parse.urlencode({'text': f'{SCRIPT} </script> {words[1]}', 'word': SCRIPT, 'position': 1})
        driver.get(f'{served[1]}/?{query}')
        until(driver, '.next .name', lambda x: x == ['mixture', *names])
        until(driver, '.surprise', lambda x: x[:3] == [SCRIPT, '</script>', words[1]])
        (note,) = texts(driver, '.note')
        assert '33.3%' in note and '</script>' in note
        assert set(words) <= set(texts(driver, '.next:nth-child(2) .word'))
        for css in ('.surprise', '.weights .q-slider', '.map text', '.neighbours .entry'):
            webdriver.ActionChains(driver).move_to_element(driver.find_elements('css selector', css)[0]).perform()
        labels = [x.get_attribute('aria-label') for x in driver.find_elements('css selector', '.weights .q-slider')]
        assert all(label.endswith(name) for label, name in zip(labels, names, strict=True))
        click(driver, '.next:nth-child(2) .word', words[-1])
        until(driver, '.surprise', lambda x: len(x) == 12 and x[3] == words[-1])
        time.sleep(0.5)
        assert driver.execute_script('return [window.pwned ?? null, document.images.length]') == [None, 0]


def test_a_long_text_is_cut_and_the_page_says_so(browser):
    field = browser.find_element('css selector', TEXT)
    paste = 'arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event("input"))'
    browser.execute_script(paste, field, 'i ' * 20_000)
    until(browser, '.note', lambda x: x == ['only the first 5,000 characters are read'])
    until(browser, '.reading .text:nth-child(2) .quiet', lambda x: x == ['… 2,440 words'])


def test_a_visitor_types_clicks_and_reads(browser):
    retype(browser.find_element('css selector', TEXT), 'i zzz')
    until(browser, '.note', lambda x: len(x) == 1 and '50.0%' in x[0] and 'zzz' in x[0])
    until(browser, '.surprise.unknown', lambda x: x == ['zzz'] * 3)  # striped, without a surprisal color
    backgrounds = 'return [...document.querySelectorAll(".surprise")].map(x => getComputedStyle(x).backgroundImage)'
    assert ['gradient' in image for image in browser.execute_script(backgrounds)] == [False, True] * 3
    assert any('<rare>' in legend for legend in texts(browser, '.legend ~ div .quiet, .legend')[1:])
    type_text(browser, 'i love')
    assert texts(browser, '.unknown') == []
    assert texts(browser, '.note') == texts(browser, '.neighbours') == []
    assert [words[0] for words in lists(browser)] == ['coffee'] * 3
    click(browser, '.next:nth-child(2) .word', 'coffee')
    until(browser, '.surprise', lambda x: x == ['i', 'love', 'coffee'] * 3)
    assert text(browser) == 'i love coffee'
    assert field(browser, 'a word').get_attribute('value') == 'coffee'
    until(browser, '.neighbours .name', lambda x: x == ['network'])
    nearest = texts(browser, '.neighbours .word')
    assert len(nearest) == 9 and 'coffee' not in nearest
    click(browser, '.neighbours .word', nearest[0])
    until(browser, '.neighbours .word', lambda x: 'coffee' in x and nearest[0] not in x)


def lists(browser):
    """Returns the words listed by each model."""
    return [texts(browser, f'.next:nth-child({i}) .word') for i in (1, 2, 3)]


def test_an_empty_page_says_what_to_do_and_an_example_is_a_click(browser):
    assert len(texts(browser, '.hint')) == len(texts(browser, '.beginning')) == 1
    assert texts(browser, 'h1') == [browser.title]
    click(browser, '.example', 'i love')
    until(browser, '.surprise', lambda x: x == ['i', 'love'] * 3)
    assert text(browser) == 'i love' and texts(browser, '.hint') == texts(browser, '.beginning') == []
    (ticks,) = texts(browser, '.ticks')
    assert [tick.split()[-1] for tick in ticks.splitlines()[1:]] == ['16', '256', '4,096', '65,536']


def test_hovering_over_a_word_shows_its_surprisal_and_clicking_what_was_expected(browser):
    type_text(browser, 'i love dog')
    words = browser.find_elements('css selector', '.surprise')
    webdriver.ActionChains(browser).move_to_element(words[2]).perform()
    until(browser, '.q-tooltip', lambda x: x and 'bits' in x[0] and 'perplexity so far' in x[0])
    words[2].click()
    until(browser, '.explanation .rank', lambda x: len(x) == 3 and all(y.startswith('rank ') for y in x))
    assert all('coffee' in x for x in texts(browser, '.explanation'))
    assert query(browser)['position'] == '3' and field(browser, 'a word').get_attribute('value') == 'dog'
    click(browser, 'button', 'close')
    until(browser, '.explanation', lambda x: x == [])


def test_the_weights_of_the_mixture_are_sliders(browser):
    type_text(browser, 'i love')
    assert texts(browser, '.share') == ['50%', '50%']
    mixed, network, _ = texts(browser, '.perplexity')
    assert mixed.split('\n')[1] != network.split('\n')[1]
    slider = browser.find_element('css selector', '[aria-label="weight of counts"]')
    browser.execute_script('arguments[0].scrollIntoView({block: "center"})', slider)
    webdriver.ActionChains(browser).click(slider).send_keys(webdriver.Keys.PAGE_DOWN * 6).perform()
    until(browser, '.share', lambda x: x == ['100%', '0%'])
    until(browser, '.perplexity', lambda x: x[0].split('\n')[1] == network.split('\n')[1])
    wait(lambda: query(browser), lambda x: x.get('weights') == '0.5,0')
    click(browser, 'button', 'reset')
    until(browser, '.perplexity', lambda x: x[0] == mixed)
    wait(lambda: query(browser), lambda x: 'weights' not in x)


def test_digits_arrows_and_backspace_write_without_a_mouse(browser):
    type_text(browser, 'i love')
    press(browser, webdriver.Keys.ARROW_RIGHT)
    until(browser, '.next.active .name', lambda x: x == ['network'])
    second = texts(browser, '.next.active .word')[1]
    press(browser, '2')
    until(browser, '.surprise', lambda x: x == ['i', 'love', second] * 3)
    press(browser, webdriver.Keys.BACKSPACE)
    until(browser, '.surprise', lambda x: x == ['i', 'love'] * 3)
    press(browser, '/')
    wait(lambda: browser.switch_to.active_element.get_attribute('aria-label'), lambda x: x == 'beginning of a text')
    found = browser.switch_to.active_element
    found.send_keys(webdriver.Keys.ARROW_DOWN)
    until(browser, '.entry.lit .word', lambda x: x == [texts(browser, '.next.active .word')[0]])
    found.send_keys(webdriver.Keys.ARROW_DOWN)
    until(browser, '.entry.lit .word', lambda x: x == [second])
    found.send_keys(webdriver.Keys.ENTER)
    until(browser, '.surprise', lambda x: x == ['i', 'love', second] * 3)
    assert text(browser) == f'i love {second}'


def test_a_link_restores_the_page(browser, served):
    state = PageState(text='i love dog', word='milk', position=3, count=4, model=1, source=2, weights=(0.75, 0.25))
    state.seed, state.top_k = 5, 2
    visit(browser, served, state.to_query())
    assert text(browser) == 'i love dog' and field(browser, 'a word').get_attribute('value') == 'milk'
    until(browser, '.neighbours .word', lambda x: len(x) == 4)
    assert len(texts(browser, '.explanation')) == 3 and len(texts(browser, '.next .word')) == 12
    assert texts(browser, '.share') == ['75%', '25%'] and texts(browser, '.next.active .name') == ['network']
    assert field(browser, 'seed').get_attribute('value') == '5'
    type_text(browser, 'i love')  # the third word, which was explained, has been removed
    state.text, state.position = 'i love', None
    wait(lambda: urllib.parse.urlsplit(browser.current_url).query, lambda x: x == state.to_query())


def test_an_impossible_link_opens_a_new_page_and_says_why(browser, served):
    visit(browser, served, 'text=i+love&weights=1')
    (note,) = texts(browser, '.note')
    assert "weights='1'" in note
    assert text(browser) == ''


def test_a_word_of_the_map_is_a_click(browser):
    until(browser, '.map text', lambda x: {'feature 1', 'like'} <= set(x))
    place = browser.execute_script(
        'const chart = getElement([...document.querySelectorAll(".map")][0].id.slice(1)).chart;'
        'const point = chart.getOption().series[0].data.find(x => x.name === "like");'
        'return chart.convertToPixel({seriesIndex: 0}, point.value)'
    )
    chart = browser.find_element('css selector', '.map')
    browser.execute_script('arguments[0].scrollIntoView({block: "center"})', chart)
    size = chart.size
    offset = int(place[0] - size['width'] / 2), int(place[1] - size['height'] / 2)
    webdriver.ActionChains(browser).move_to_element_with_offset(chart, *offset).click().perform()
    until(browser, '.neighbours .name', lambda x: x == ['network'])
    assert field(browser, 'a word').get_attribute('value') == 'like'
    assert query(browser) == {'word': 'like'}


def test_the_wheel_scrolls_the_page_over_the_map_and_zooms_with_ctrl(browser):
    chart = browser.find_element('css selector', '.map')
    browser.execute_script('arguments[0].scrollIntoView({block: "center"})', chart)
    until(browser, '.map text', lambda x: 'feature 1' in x)
    zoom = 'return getElement(arguments[0].id.slice(1)).chart.getOption().dataZoom.map(x => x.end - x.start)'
    height = browser.execute_script('return scrollY')
    assert height > 0 and browser.execute_script(zoom, chart) == [100, 100]
    wheel(browser, chart, modifiers=2)  # Ctrl
    zoomed = wait(lambda: browser.execute_script(zoom, chart), lambda x: max(x) < 100)
    assert browser.execute_script('return scrollY') == height
    wheel(browser, chart, modifiers=0)
    wait(lambda: browser.execute_script('return scrollY'), lambda x: x < height)
    assert browser.execute_script(zoom, chart) == zoomed


def wheel(browser, element, modifiers):
    """Turns the mouse wheel up over the center of an element."""
    box = element.rect
    x, y = box['x'] + box['width'] / 2, box['y'] + box['height'] / 2 - browser.execute_script('return scrollY')
    turn = {'x': x, 'y': y, 'deltaX': 0, 'deltaY': -60, 'modifiers': modifiers}
    browser.execute_cdp_cmd('Input.dispatchMouseEvent', {'type': 'mouseWheel'} | turn)


def test_the_colours_follow_the_system_until_a_visitor_chooses(browser):
    light = browser.execute_script(BODY)
    scheme = {'name': 'prefers-color-scheme', 'value': 'dark'}
    try:
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [scheme]})
        dark = wait(lambda: browser.execute_script(BODY), lambda x: x != light)
        browser.find_element('css selector', '.theme').click()
        wait(lambda: browser.execute_script(BODY), lambda x: x == light)
        browser.refresh()  # the browser stores the choice
        until(browser, '.next .name', lambda x: len(x) == 3)
        wait(lambda: browser.execute_script(BODY), lambda x: x == light)
        browser.find_element('css selector', '.theme').click()
        wait(lambda: browser.execute_script(BODY), lambda x: x == dark)
    finally:
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})
        browser.execute_script('localStorage.clear()')


def test_a_phone_scrolls_down_and_never_sideways(browser, served, tmp_path):
    browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', PHONE)
    try:
        visit(browser, served, PageState(text='i love coffee ' * 9, word='milk', position=3).to_query())
        widths = 'const page = document.documentElement; return [page.scrollWidth, page.clientWidth]'
        assert browser.execute_script(widths) == [390, 390]
        outside = '[...document.querySelectorAll("main *")].filter(x => x.getBoundingClientRect().right > 391).length'
        assert browser.execute_script(f'return {outside}') == 0
        assert browser.save_screenshot(str(tmp_path / 'phone.png'))
    finally:
        browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_a_visitor_lets_a_model_continue_the_text(browser):
    type_text(browser, 'i hate')
    retype(field(browser, 'words'), '1')
    retype(field(browser, 'top k'), '1')
    wait(lambda: query(browser), lambda x: (x.get('words'), x.get('top_k')) == ('1', '1'))
    click(browser, 'button', 'write')
    until(browser, '.written', lambda x: x == ['… milk'] * 3)
    browser.find_element('css selector', '.written').click()
    until(browser, '.surprise', lambda x: x == ['i', 'hate', 'milk'] * 3)
    retype(field(browser, 'temperature'), '')
    until(browser, '.q-field__messages', lambda x: any('must be a number' in message for message in x))
    click(browser, 'button', 'write')
    until(browser, '.written', lambda x: x == [])
    assert 'temperature' not in query(browser)


def test_the_page_asks_nobody_else_and_reports_no_error(browser, served):
    messages = [json.loads(entry['message'])['message'] for entry in browser.get_log('performance')]
    asked = [m['params']['request']['url'] for m in messages if m['method'] == 'Network.requestWillBeSent']
    asked += [m['params']['url'] for m in messages if m['method'] == 'Network.webSocketCreated']
    host = urllib.parse.urlsplit(served[1]).hostname  # other tests serve pages at other ports of the same host
    others = [url for url in asked if urllib.parse.urlsplit(url).hostname != host]
    assert len(asked) > 5 and not [url for url in others if url.startswith(('http', 'ws'))]
    assert browser.get_log('browser') == []
