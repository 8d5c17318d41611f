"""Who may ask for the page: refuses requests that another site makes a visitor's browser send.

A page elsewhere can point its own host name at this machine (DNS rebinding) or open a socket to it. The first sends a
foreign Host header, the second a foreign Origin header; both are refused here, whatever they ask for.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

THIS_MACHINE = ('127.0.0.1', 'localhost', '::1')
REFUSAL = b'The explorer answers only to the names it listens as; start it with --host=NAME for another one.\n'

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class HostCheck:
    """ASGI middleware that answers 403 to requests whose Host is not a name of the server, or whose Origin is not it.

    A server that listens on all addresses answers to this machine's name as well and to any address as a number: a
    number cannot be rebound.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], host: str) -> None:
        """Takes the app behind it and the `--host` that the server listens on."""
        self._app = app
        self._any_address = host in ('', '0.0.0.0', '::')
        own = (socket.gethostname(),) if self._any_address else (host,)
        self._names = {name.lower() for name in (*THIS_MACHINE, *own)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        if scope['type'] not in ('http', 'websocket') or self.accepts(scope['headers']):
            await self._app(scope, receive, send)
        elif scope['type'] == 'websocket':
            await send({'type': 'websocket.close', 'code': 1008})  # before it is accepted: answered with 403
        else:
            headers = [(b'content-type', b'text/plain; charset=utf-8')]
            await send({'type': 'http.response.start', 'status': 403, 'headers': headers})
            await send({'type': 'http.response.body', 'body': REFUSAL})

    def accepts(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Tells whether there is one Host, a name of the server, and every Origin is that host over HTTP."""
        hosts = [value.decode('latin-1').lower() for name, value in headers if name.lower() == b'host']
        origins = [value.decode('latin-1').lower() for name, value in headers if name.lower() == b'origin']
        if len(hosts) != 1 or not self._is_own(_without_port(hosts[0])):
            return False
        return all(origin in (f'http://{hosts[0]}', f'https://{hosts[0]}') for origin in origins)

    def _is_own(self, name: str) -> bool:
        return name in self._names or (self._any_address and _is_address(name))


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
