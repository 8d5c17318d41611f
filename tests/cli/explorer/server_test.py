"""What the explorer's server answers, and how it ends."""

import http.client
import signal
import urllib.parse

import pytest

pytestmark = pytest.mark.browser  # needs NiceGUI


@pytest.mark.parametrize('path', ['/', '/_nicegui_ws/socket.io/?EIO=4&transport=polling&implicit_handshake=1'])
def test_the_page_and_its_socket_answer_to_no_other_host_and_no_other_origin(served, path):
    own = urllib.parse.urlsplit(served[1]).netloc
    assert status(own, path, {'Host': own}) == status(own, path, {'Host': own, 'Origin': f'http://{own}'}) == 200
    assert status(own, path, {'Host': 'evil.example'}) == 403
    assert status(own, path, {'Host': own, 'Origin': 'http://evil.example'}) == 403


def test_a_websocket_from_another_origin_is_refused(served):
    own = urllib.parse.urlsplit(served[1]).netloc
    headers = {'Connection': 'Upgrade', 'Upgrade': 'websocket', 'Sec-WebSocket-Version': '13'}
    headers |= {'Host': own, 'Sec-WebSocket-Key': 'bm90IGEgc2VjcmV0IGtleQ=='}
    path = '/_nicegui_ws/socket.io/?EIO=4&transport=websocket'
    assert status(own, path, headers | {'Origin': f'http://{own}'}) == 101
    assert status(own, path, headers | {'Origin': 'http://evil.example'}) == 403


def status(address, path, headers):
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request('GET', path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_ctrl_c_ends_it_quietly(served):
    process, _ = served
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (0, '', '')
