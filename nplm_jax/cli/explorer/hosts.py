"""Who may ask for the page: refuses requests that another site makes a visitor's browser send.

A page elsewhere can point its own host name at this machine (DNS rebinding), open a socket to it, or name an address
here as its picture, script or frame. The first sends a foreign Host header, the second a foreign Origin header, the
third `Sec-Fetch-Site: cross-site`; all are refused, whatever they ask for. A link that a visitor clicks is answered.
"""

import functools
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

THIS_MACHINE = ('127.0.0.1', 'localhost', '::1')
# For the browser: no other site may frame or use an answer or learn its address, and it loads nothing from elsewhere.
ANSWER_HEADERS = (
    (b'x-frame-options', b'DENY'),
    (b'x-content-type-options', b'nosniff'),
    (b'cross-origin-resource-policy', b'same-origin'),
    (b'cross-origin-opener-policy', b'same-origin'),
    (b'referrer-policy', b'no-referrer'),
    (
        b'content-security-policy',
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; form-action 'none'",
    ),
)
REFUSAL = b'The explorer answers only to the names it listens as; start it with --host=NAME for another one.\n'
FULL = b'The explorer has as many visitors as it takes; try again in a minute.\n'
MAX_VISITORS = 200

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Headers = Sequence[tuple[bytes, bytes]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class HostCheck:
    """ASGI middleware that answers 403 to requests whose Host is not a name of the server, or that another site makes.

    A server that listens on all addresses answers to this machine's name as well and to any address as a number: a
    number cannot be rebound.
    """

    def __init__(self, app: App, host: str) -> None:
        """Takes the app behind it and the `--host` that the server listens on."""
        self._app = app
        self._any_address = host in ('', '0.0.0.0', '::')
        own = (socket.gethostname(),) if self._any_address else (host,)
        self._names = {name.lower() for name in (*THIS_MACHINE, *own)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        if scope['type'] not in ('http', 'websocket') or self.accepts(scope['headers']):
            await self._app(scope, receive, functools.partial(_send_with_headers, send))
        elif scope['type'] == 'websocket':
            await send({'type': 'websocket.close', 'code': 1008})  # before it is accepted: answered with 403
        else:
            await _refuse(functools.partial(_send_with_headers, send), 403, REFUSAL)

    def accepts(self, headers: Headers) -> bool:
        """Tells whether there is one Host, a name of the server, and no other site has made the request."""
        hosts, origins = _values(headers, b'host'), _values(headers, b'origin')
        if len(hosts) != 1 or not self._is_own(_without_port(hosts[0])):
            return False
        own = (f'http://{hosts[0]}', f'https://{hosts[0]}')
        return all(origin in own for origin in origins) and not _is_embedded(headers)

    def _is_own(self, name: str) -> bool:
        return name in self._names or (self._any_address and _is_address(name))


class VisitorLimit:
    """ASGI middleware that answers 503 to new visitors while there are MAX_VISITORS pages, each of which takes memory.

    A page that no browser has connected to counts too; NiceGUI forgets it after a minute.
    """

    def __init__(self, app: App, num_visitors: Callable[[], int]) -> None:
        """Takes the app behind it, and what counts the pages."""
        self._app = app
        self._num_visitors = num_visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        if scope['type'] == 'http' and scope['path'] == '/' and self._num_visitors() >= MAX_VISITORS:
            await _refuse(send, 503, FULL)
        else:
            await self._app(scope, receive, send)


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b'content-type', b'text/plain; charset=utf-8')]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': text})


def _values(headers: Headers, name: bytes) -> list[str]:
    """Returns what each header of a name says, in lower case."""
    return [value.decode('latin-1').lower() for key, value in headers if key.lower() == name]


def _is_embedded(headers: Headers) -> bool:
    """Tells whether a page of another site asks for a part of itself. Every browser since 2023 says so."""
    foreign = any(site not in ('same-origin', 'none') for site in _values(headers, b'sec-fetch-site'))
    return foreign and _values(headers, b'sec-fetch-dest') != ['document']


async def _send_with_headers(send: Send, message: MutableMapping[str, Any]) -> None:
    """Sends a message of the app; adds ANSWER_HEADERS where an answer begins."""
    if message['type'] == 'http.response.start':
        message = {**message, 'headers': [*message.get('headers', ()), *ANSWER_HEADERS]}
    await send(message)


def _without_port(host: str) -> str:
    """Returns the name in a Host header, without the brackets of an IPv6 address."""
    if host.startswith('['):
        return host[1:].partition(']')[0]
    return host.rpartition(':')[0] if ':' in host else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
