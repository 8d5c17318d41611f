"""Means to cause network faults: a proxy for the coordinator, and network namespaces that can be disconnected."""

import contextlib
import ctypes
import functools
import os
import pathlib
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

_NEW_NETWORK, _NEW_MOUNTS, _NEW_NAME = 0x40000000, 0x00020000, 0x04000000  # flags of setns and unshare


class Proxy:
    """Forwards one port to another. `paused` blocks all data, and `close` ends every connection."""

    def __init__(self, port: int) -> None:
        """Starts forwarding to `port` on this machine."""
        self._server = socket.create_server(('localhost', 0))
        self._target, self._pairs = port, {}
        self._running, self._ended = threading.Event(), False
        self._running.set()
        self.address = f'localhost:{self._server.getsockname()[1]}'
        threading.Thread(target=self._serve, daemon=True).start()

    def pause(self) -> None:
        """Holds back all incoming data."""
        self._running.clear()

    def go_on(self) -> None:
        """Forwards the data that was held back."""
        self._running.set()

    def close(self) -> None:
        """Ends every connection and accepts no new connections."""
        self._ended = True
        self._running.set()
        for end in [self._server, *self._pairs]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._ended:
                ready, *_ = select.select([self._server, *self._pairs], [], [], 0.1)
                self._running.wait()
                for end in ready:
                    self._connect() if end is self._server else self._pass(end)

    def _connect(self) -> None:
        near, _ = self._server.accept()
        with contextlib.suppress(OSError):  # not listening yet; the other end will try again
            far = socket.create_connection(('localhost', self._target))
            self._pairs |= {near: far, far: near}
            return
        near.close()

    def _pass(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        with contextlib.suppress(OSError):
            if data := end.recv(1 << 16):
                other.sendall(data)
                return
        for gone in (end, other):
            del self._pairs[gone]
            gone.close()


@contextlib.contextmanager
def networks(count: int, name: str) -> Iterator[list[str]]:
    """Creates network namespaces on one bridge, with addresses from 10.77.0.1 on, within the `with` block.

    Yields:
        Their names, for `entering` and `pull`.
    """
    names, bridge = [f'{name}{i}' for i in range(count)], f'{name}b'
    _ip('link', 'add', bridge, 'type', 'bridge')
    _ip('link', 'set', bridge, 'up')
    try:
        for i, network in enumerate(names):
            _ip('netns', 'add', network)
            _ip('link', 'add', f'{network}o', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', network)
            _ip('link', 'set', f'{network}o', 'master', bridge, 'up')
            for words in (['addr', 'add', f'10.77.0.{i + 1}/24', 'dev', 'eth0'], ['link', 'set', 'eth0', 'up']):
                _ip('-n', network, *words)
            _ip('-n', network, 'link', 'set', 'lo', 'up')
        yield names
    finally:
        for network in names:
            _ip('link', 'delete', f'{network}o', check=False)  # a namespace lives as long as its last process
            _ip('netns', 'delete', network, check=False)
        _ip('link', 'delete', bridge, check=False)


def pull(network: str, plugged: bool = False) -> None:
    """Unplugs a network, or plugs it in again."""
    _ip('link', 'set', f'{network}o', 'up' if plugged else 'down')


def entering(network: str, i: int, folder: pathlib.Path) -> Callable[[], None]:
    """Returns a function that moves a process into a network, with the name of the network as its host name."""
    hosts = folder / f'{network}.hosts'
    hosts.write_text(f'127.0.0.1 localhost\n10.77.0.{i + 1} {network}\n')
    return functools.partial(_enter, network, str(hosts))


def _enter(network: str, hosts: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f'/run/netns/{network}', os.O_RDONLY)
    assert libc.setns(handle, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    assert libc.unshare(_NEW_MOUNTS | _NEW_NAME) == 0, os.strerror(ctypes.get_errno())
    for words in (['mount', '--make-rprivate', '/'], ['mount', '--bind', hosts, '/etc/hosts'], ['hostname', network]):
        subprocess.run(words, check=True)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(['ip', *words], check=check, capture_output=not check)
