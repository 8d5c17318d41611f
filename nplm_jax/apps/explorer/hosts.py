"""Who may ask for the page: refuses requests that another site makes a visitor's browser send.

A page elsewhere can point its own host name at this machine (DNS rebinding), open a socket to it, or name an address
here as its picture, script or frame. The first sends a foreign Host header, the second a foreign Origin header, the
third `Sec-Fetch-Site: cross-site`; all are refused, whatever they ask for. A link that a visitor clicks is answered.
"""

import functools
import ipaddress
import re
import socket
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

_HOST = re.compile(r'(?:\[([\da-f:.]+)\]|([\w.-]+))(?::\d*)?', re.ASCII | re.IGNORECASE)  # an address or a name, a port
THIS_MACHINE = ('127.0.0.1', 'localhost', '::1')
# For the browser: no other site may frame or use an answer or learn its address, and it loads nothing from elsewhere.
ANSWER_HEADERS = {
    'x-frame-options': 'DENY',
    'x-content-type-options': 'nosniff',
    'cross-origin-resource-policy': 'same-origin',
    'cross-origin-opener-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'content-security-policy': "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "frame-ancestors 'none'; form-action 'none'",
}
REFUSAL = 'The explorer answers only requests to its own host name; start it with --host=NAME to use another one.\n'
FULL = 'The explorer has reached its limit of visitors; try again in a minute.\n'
MAX_VISITORS = 200


class Gate:
    """ASGI middleware that answers 403 to requests whose Host is not a name of the server, or that another site makes.

    A server that listens on all addresses answers to this machine's name as well and to any address as a number: a
    number cannot be rebound. New visitors are answered 503 while there are MAX_VISITORS pages, each of which takes
    memory; a page that no browser has connected to counts too, and NiceGUI forgets it after a minute.
    """

    def __init__(self, app: ASGIApp, host: str, num_visitors: Callable[[], int]) -> None:
        """Takes the app behind it, the `--host` that the server listens on, and what counts the pages."""
        self._app = app
        self._num_visitors = num_visitors
        self._any_address = host in ('', '0.0.0.0', '::')
        own = socket.gethostname() if self._any_address else host
        self._names = {name.lower() for name in (*THIS_MACHINE, own)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        answer = self._app
        if scope['type'] in ('http', 'websocket') and not self.accepts(Headers(scope=scope)):
            # A socket that is closed before it is accepted is answered with 403 too.
            answer = PlainTextResponse(REFUSAL, 403) if scope['type'] == 'http' else WebSocketClose(1008)
        elif scope.get('path') == '/' and self._num_visitors() >= MAX_VISITORS:
            answer = PlainTextResponse(FULL, 503)
        await answer(scope, receive, functools.partial(_send_with_headers, send))

    def accepts(self, headers: Headers) -> bool:
        """Tells whether there is one Host, a name of the server, and no other site has made the request."""
        hosts, origins = headers.getlist('host'), headers.getlist('origin')
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return False
        own = (f'http://{hosts[0]}', f'https://{hosts[0]}')
        # A page of another site that asks for a part of itself. Every browser since 2023 says so.
        foreign = any(site not in ('same-origin', 'none') for site in headers.getlist('sec-fetch-site'))
        embedded = foreign and headers.getlist('sec-fetch-dest') != ['document']
        return all(origin in own for origin in origins) and not embedded

    def _is_own(self, host: str) -> bool:
        if not (match := _HOST.fullmatch(host)):
            return False
        name = (match[1] or match[2]).lower()
        try:
            return name in self._names or (self._any_address and bool(ipaddress.ip_address(name)))
        except ValueError:  # no address
            return False


async def _send_with_headers(send: Send, message: Message) -> None:
    """Sends a message of the app; adds ANSWER_HEADERS where an answer begins."""
    if message['type'] == 'http.response.start':
        MutableHeaders(scope=message).update(ANSWER_HEADERS)
    await send(message)
