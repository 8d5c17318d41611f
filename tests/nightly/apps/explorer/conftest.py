"""Defines fixtures for a process that serves the explorer, and for a browser."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse

import pytest
from helpers import ROOT

BROWSER, DRIVER = shutil.which('chromium'), shutil.which('chromedriver')
FLAGS = (  # a fresh browser without internet access and without root
    *('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--window-size=1200,1300'),
    *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
)


@pytest.fixture(scope='module')
def served(folders):
    """The process that serves the explorer of both models, and its address."""
    with serving(*(folders / name for name in ('network', 'counts'))) as process_and_address:
        yield process_and_address


@pytest.fixture(scope='module')
def toured(folders):
    """The process that serves the tour of both models, and its address."""
    with serving(*(folders / name for name in ('network', 'counts')), switches=('--tour',)) as process_and_address:
        yield process_and_address


@contextlib.contextmanager
def serving(*folders, switches=()):
    """Yields a process that serves the models of the given runs, and its address."""
    pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')
    flags = [str(folder) for folder in folders]
    line = [sys.executable, '-m', 'nplm_jax.cli', 'explore', *flags, '--port=0', '--no_browser', *switches]
    env = {**os.environ, 'PYTHONWARNINGS': 'ignore'}  # a warning about too little text
    env.pop('PYTEST_CURRENT_TEST', None)  # NiceGUI reads this variable
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    with subprocess.Popen(line, cwd=ROOT, env=env, text=True, **pipes) as process:
        try:
            address = process.stdout.readline().split()[0]
            listens(urllib.parse.urlsplit(address).port)
            yield process, address
        finally:
            process.kill()


def listens(port):
    """Waits until a process listens on a port. The address is printed shortly before."""
    stop = time.monotonic() + 60
    while time.monotonic() < stop:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(('127.0.0.1', port)):
            return
        time.sleep(0.1)
    pytest.fail(f'nothing listens at {port}')


@pytest.fixture
def serve():
    """Returns the function that serves other models."""
    return serving


@contextlib.contextmanager
def open_browser(folder):
    """Yields Chromium, with a profile in the given folder and a log of all requests."""
    if not (BROWSER and DRIVER):
        pytest.skip('needs chromium and chromedriver')
    webdriver = pytest.importorskip('selenium.webdriver', reason='needs Selenium: pip install selenium')
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f'--user-data-dir={folder}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'performance': 'ALL', 'browser': 'ALL'})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope='session')
def browsing():
    """Returns the function that opens a browser."""
    return open_browser
