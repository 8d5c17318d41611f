"""Simulated visitors to the explorer. Each opens the page, types texts, reads the answers and leaves.

A visitor communicates in the same way as the page's script. It requests the page and opens a socket. For each text, it
sends the text on the socket and waits for the next change to the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
import urllib.parse
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import socketio

from nplm_jax.apps.explorer.page import TEXT_LABEL

_ELEMENTS = re.compile(r'parseElements\(String\.raw`(.*?)`\)', re.DOTALL)
_QUERY = re.compile(r"'client_id': '([^']+)'")
_PATH = '/_nicegui_ws/socket.io'
_TIMEOUT = 120.0  # seconds
TEXTS_PER_PAGE = 6
THINKING = 0.5, 2.0  # minimum and maximum time between an answer and the next text, in seconds


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        kind: `page`, `text` or `error`.
        at: The time of the answer on the monotonic clock.
        seconds: The duration.
        note: The error.
    """

    kind: str
    at: float
    seconds: float
    note: str = ''


async def visit(address: str, number: int, words: Sequence[str], stop: float, answers: list[Answer]) -> None:
    """Opens pages until the time `stop` on the monotonic clock, and appends the answers.

    Args:
        address: The address of the explorer.
        number: The number of the visitor, which is used as its random seed.
        words: The words that the visitor types.
        stop: The time at which the visitor leaves.
        answers: The list to which the answers are appended.
    """
    rng = random.Random(number)
    while time.monotonic() < stop:
        began = time.monotonic()
        try:
            await _open_page(address, rng, words, stop, answers)
        except (aiohttp.ClientError, socketio.exceptions.SocketIOError, OSError, ValueError, TimeoutError) as error:
            now = time.monotonic()
            answers.append(Answer('error', now, now - began, repr(error)[:200]))
            await asyncio.sleep(1)


async def _open_page(
    address: str, rng: random.Random, words: Sequence[str], stop: float, answers: list[Answer]
) -> None:
    query = urllib.parse.urlencode({'text': _text(rng, words)})
    began = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f'{address}/?{query}') as response:
        page = await response.text()
        if response.status != 200:
            raise ValueError(f'status {response.status}')
    answers.append(Answer('page', time.monotonic(), time.monotonic() - began))
    client_id, element, listener = _text_field(page)
    socket, changed = socketio.AsyncClient(reconnection=False), asyncio.Event()
    socket.on('update', lambda *_: changed.set())
    handshake = {'client_id': client_id, 'tab_id': client_id, 'document_id': client_id, 'next_message_id': '0'}
    handshake['implicit_handshake'] = 'true'
    await socket.connect(
        f'{address}?{urllib.parse.urlencode(handshake)}',
        socketio_path=_PATH, transports=['websocket'], wait_timeout=int(_TIMEOUT),
    )  # fmt: skip
    try:
        for _ in range(TEXTS_PER_PAGE):
            await asyncio.sleep(rng.uniform(*THINKING))
            if time.monotonic() >= stop:
                return
            changed.clear()
            began = time.monotonic()
            event = {
                'id': element,
                'client_id': client_id,
                'listener_id': listener,
                'args': [json.dumps(_text(rng, words))],
            }
            await socket.emit('event', event)
            await asyncio.wait_for(changed.wait(), _TIMEOUT)
            answers.append(Answer('text', time.monotonic(), time.monotonic() - began))
    finally:
        with contextlib.suppress(Exception):
            await socket.disconnect()


def _text(rng: random.Random, words: Sequence[str]) -> str:
    return ' '.join(rng.choice(words) for _ in range(rng.randint(3, 25)))


def _text_field(page: str) -> tuple[str, int, str]:
    """Returns the client's id, and the number and the listener of the text field on a page."""
    elements, query = _ELEMENTS.search(page), _QUERY.search(page)
    if elements is None or query is None:
        raise ValueError('the page was not created by NiceGUI 3')
    for number, element in json.loads(elements[1].replace('&lt;', '<').replace('&amp;', '&')).items():
        if element.get('props', {}).get('label') == TEXT_LABEL:
            for event in element['events']:
                if event['type'].startswith('update'):
                    return query[1], int(number), event['listener_id']
    raise ValueError('the page has no text field')
