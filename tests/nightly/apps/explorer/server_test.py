"""Tests the responses and the shutdown of the explorer's server."""

import http.client
import signal
import urllib.parse

import pytest


@pytest.mark.parametrize('path', ['/', '/_nicegui_ws/socket.io/?EIO=4&transport=polling&implicit_handshake=1'])
def test_the_page_and_its_socket_answer_to_no_other_host(served, path):
    own = urllib.parse.urlsplit(served[1]).netloc
    assert status(own, path, {'Host': own}) == status(own, path, {'Host': 'localhost'}) == 200
    assert status(own, path, {'Host': 'evil.example'}) == 400


def status(address, path, headers, method='GET', body=None):
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


PATH_OF_SOCKET = '/_nicegui_ws/socket.io/?EIO=4&transport=polling'


@pytest.mark.parametrize(
    'path,expected',
    [
        ('/?text=' + 'i+' * 10_000, 200),  # with a note that the link cannot be restored
        ('/?text=' + 'i+' * 100_000, 400),  # the server's limit on the size of a request
        ('/?' + '&'.join(f'weights={i}' for i in range(5_000)), 200),
        ('/?text=%00%ff%ED%A0%80&at=1&word=%F0', 200),
        ('/../../../../etc/passwd', 404),
        ('/_nicegui/3.18.0/static/..%2f..%2f..%2f..%2fetc%2fpasswd', 404),
        ('/_nicegui/auto/static/../../../etc/passwd', 404),
    ],
)
def test_a_hostile_address_is_answered_at_once(served, path, expected):
    address = urllib.parse.urlsplit(served[1]).netloc
    assert status(address, path, {'Host': address}) == expected
    assert status(address, '/', {'Host': address}) == 200


@pytest.mark.parametrize('body', [b'', b'x', b'40' + b'[' * 10_000, b'42["event"]', b'9' * 3_000_000, b'\xff' * 1000])
def test_a_hostile_message_leaves_the_page_to_the_others(served, body):
    address = urllib.parse.urlsplit(served[1]).netloc
    status(address, PATH_OF_SOCKET, {'Host': address}, 'POST', body)
    assert status(address, '/', {'Host': address}) == 200


def test_a_method_that_writes_is_refused(served):
    address = urllib.parse.urlsplit(served[1]).netloc
    for method in ('POST', 'PUT', 'DELETE', 'PATCH'):
        assert status(address, '/', {'Host': address}, method, b'x' * 10**6) == 405


def test_ctrl_c_ends_it(served):
    process, _ = served
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, '')
