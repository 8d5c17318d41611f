"""Tests the responses of the tour's server, and which clients receive them."""

import concurrent.futures
import http.client
import json
import signal
import urllib.parse

import pytest
from helpers import refuses

from nplm_jax.apps.explorer import server


def ask(served, path, headers=(), method='GET'):
    """Returns the status, the headers and the text of a response."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(served[1]).netloc, timeout=60)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


PATHS = ['/', '/tour.js', '/tour.css', '/style.css', '/units', '/training', '/network?text=i']


@pytest.mark.parametrize('path', PATHS)
def test_every_answer_is_for_its_own_host_and_loads_nothing_from_elsewhere(toured, path):
    status, _, text = ask(toured, path)
    assert status == 200 and 'http' not in text.replace('http://www.w3.org/2000/svg', '')
    assert ask(toured, path, {'Host': 'evil.example'})[0] == 400
    assert ask(toured, path, method='POST')[0] == 405


@pytest.mark.parametrize(
    'query,message',
    [
        ('', "text='': "),
        ('text=+', "text=' ': "),
        ('text=' + 'i+' * 251, '500'),
    ],
)
def test_an_impossible_context_is_one_line(toured, query, message):
    status, _, text = ask(toured, f'/network?{query}')
    error = json.loads(text)['error']
    assert status == 400 and message in error and '\n' not in error


def test_no_other_file_is_served(toured):
    for path in ('/server.py', '/../../../../etc/passwd', '/%2e%2e/tour.py', '/docs'):
        assert ask(toured, path)[0] == 404


def test_a_port_that_is_taken_is_one_line(toured):
    port = urllib.parse.urlsplit(toured[1]).port
    with refuses("--host='127.0.0.1' --port"):
        server.listen('127.0.0.1', port)


def test_texts_that_are_typed_at_once_get_the_answers_of_each_alone(toured):
    paths = [f'/network?{urllib.parse.urlencode({"text": text})}' for text in ['i', 'i love', 'coffee and'] * 4]
    alone = {path: ask(toured, path)[2] for path in paths[:3]}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda path: ask(toured, path), paths))
    assert [(status, text) for status, _, text in answers] == [(200, alone[path]) for path in paths]


def test_ctrl_c_ends_it(toured):
    process, _ = toured
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, '')
