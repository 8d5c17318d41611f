"""The explorer answers to its own names alone: DNS rebinding and sockets from other sites are refused."""

import asyncio
import socket

import pytest

pytest.importorskip('nicegui', reason='needs NiceGUI: pip install nicegui')

from nplm_jax.apps.explorer.hosts import Gate


def answer(host, headers, kind='http'):
    """What the server sends, as the types of its messages; 'passed' if the page itself was asked."""
    sent = []

    async def app(scope, receive, send):
        sent.append('passed')

    async def send(message):
        sent.append(message.get('status', message['type']))

    scope = {'type': kind, 'headers': [(name.encode(), value.encode()) for name, value in headers]}
    asyncio.run(Gate(app, host, lambda: 0)(scope, None, send))
    return sent


@pytest.mark.parametrize(
    'name', ['127.0.0.1:8080', 'localhost:8080', 'LOCALHOST', '[::1]:8080', '[::1]', 'desk.lan:9', '127.0.0.1']
)
@pytest.mark.parametrize('kind', ['http', 'websocket'])
def test_its_own_names_are_answered_whatever_the_port(name, kind):
    """The port may be another one through a tunnel."""
    assert answer('desk.lan', [('host', name)], kind) == ['passed']
    assert answer('desk.lan', [('host', name), ('origin', f'http://{name}')], kind) == ['passed']


@pytest.mark.parametrize(
    'headers',
    [
        [('host', 'evil.example')],
        [('host', 'evil.example:8080')],
        [('host', 'localhost.evil.example:8080')],
        [('host', '192.168.1.2:8080')],
        [('host', '[::2]:8080')],
        [('host', '')],
        [('host', 'evil.example@127.0.0.1')],
        [('host', 'evil.example:80@localhost:8080')],
        [('host', 'localhost/evil.example')],
        [('host', 'localhost?evil.example')],
        [('host', 'localhost:8080#evil.example')],
        [('host', '[::1]evil.example')],
        [('host', 'localhost:evil')],
        [],
        [('host', 'localhost'), ('host', 'evil.example')],
        [('host', 'localhost:8080'), ('origin', 'http://evil.example')],
        [('host', 'localhost:8080'), ('origin', 'http://localhost:3000')],
        [('host', 'localhost:8080'), ('origin', 'http://localhost')],
        [('host', 'localhost:8080'), ('origin', 'null')],
        [('host', 'localhost:8080'), ('origin', 'http://localhost:8080.evil.example')],
        [('host', 'localhost:8080'), ('origin', 'http://localhost:8080'), ('origin', 'http://evil.example')],
    ],
)
def test_other_hosts_and_origins_are_refused(headers):
    assert answer('127.0.0.1', headers) == [403, 'http.response.body']
    assert answer('127.0.0.1', headers, 'websocket') == ['websocket.close']


@pytest.mark.parametrize('site', ['cross-site', 'same-site', 'same-origin', 'none'])
@pytest.mark.parametrize('dest', ['image', 'script', 'iframe', 'empty', 'document'])
def test_another_site_may_link_to_the_page_and_not_use_it(site, dest):
    """A picture or a frame sends no Origin; a page at another port of this machine is of the same site."""
    headers = [('host', 'localhost:8080'), ('sec-fetch-site', site), ('sec-fetch-dest', dest)]
    refused = site in ('cross-site', 'same-site') and dest != 'document'
    assert answer('127.0.0.1', headers)[0] == (403 if refused else 'passed')


def test_every_answer_tells_the_browser_that_no_other_site_may_frame_it():
    async def app(scope, receive, send):
        await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'a', b'b')]})
        await send({'type': 'http.response.body', 'body': b''})

    async def send(message):
        messages.append(message)

    for host, status in (('localhost', 200), ('evil.example', 403)):
        messages = []
        scope = {'type': 'http', 'headers': [(b'host', host.encode())]}
        asyncio.run(Gate(app, '127.0.0.1', lambda: 0)(scope, None, send))
        assert messages[0]['status'] == status and (b'x-frame-options', b'DENY') in messages[0]['headers']
        assert [m['type'] for m in messages] == ['http.response.start', 'http.response.body']


@pytest.mark.parametrize('host', ['0.0.0.0', '::'])
def test_on_all_addresses_a_number_and_the_machines_name_are_answered_but_no_other_name(host):
    for name in ('192.168.1.2:8080', '[fe80::1]:8080', socket.gethostname()):
        assert answer(host, [('host', name)]) == ['passed']
    for name in ('evil.example', '192.168.1.2.evil.example', '1.2.3'):
        assert answer(host, [('host', name)])[0] == 403


def test_more_visitors_than_the_page_takes_are_asked_to_wait():
    async def app(scope, receive, send):
        await send({'type': 'passed'})

    async def send(message):
        sent.append(message.get('status', message['type']))

    for path, num_visitors, expected in (('/', 199, 'passed'), ('/', 200, 503), ('/_nicegui/x', 200, 'passed')):
        sent = []
        scope = {'type': 'http', 'path': path, 'headers': [(b'host', b'localhost')]}
        asyncio.run(Gate(app, '127.0.0.1', lambda n=num_visitors: n)(scope, None, send))
        assert sent[0] == expected


def test_messages_that_are_no_request_pass():
    assert answer('127.0.0.1', [], 'lifespan') == ['passed']
