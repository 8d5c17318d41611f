"""Creates a folder in which the commands of the documentation run in seconds, exactly as printed.

Its configs are the repository's own on a text of a thousand words, with one small network and two epochs. Its `python`
and `nplm` start as forks of a process that has imported JAX.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import random
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import unspaced_texts

ROOT = pathlib.Path(__file__).parents[1]
SENTENCES = (
    'The jury said that it was over .',
    'The old man in the city said that the jury was out .',
    'A man of the city was in the court , and Smith was not .',
    'It was said in the court that Smith and the jury like the man .',
    'I like the old city , and the man was over the court .',
)
CONFIG = """
import itertools
from configs import {name} as real
from nplm_jax.config import settings
from nplm_jax.config.checked_fields import flatten

def get_config(*row):
    c = real.get_config(*row)
    keys = {{'corpus.min_count': 1, 'corpus.max_vocabulary': 0, 'corpus.train': 0.8, 'corpus.valid': 0.1}}
    if c.corpus.name in ('brown', 'wikitext2'):
        keys |= {{'corpus.name': 'text', 'corpus.path': {text!r}, 'corpus.tokens': 'whitespace'}}
        keys |= {{'corpus.paragraphs': 'auto'}}
    if c.model.family == 'nplm':  # all windows share one compiled program
        keys |= {{'model.n': 5, 'model.m': 6, 'model.h': 7, 'model.direct': False, 'model.dropout': 0.1}}
    keys |= {{'output.samples': 9, 'output.num_shortlist': 4, 'output.classes': 3, 'model.classes': 5}}
    keys |= {{'train.batch_size': 12, 'train.epochs': min(c.train.epochs, 2) if 'train' in c else 2}}
    keys |= {{'model.bptt_length': 4, 'train.steps_per_execution': 32, 'train.log_every': 32}}
    keys |= {{'train.checkpoint_every': 1000}}  # a save takes 0.1 s
    with settings.trusting(flatten(c)):
        return settings.to_config(settings.settle(flatten(c), keys, given=()))  # without the keys that it lacks

network = getattr(real, 'network', None)

def sweep():
    return itertools.islice(real.sweep(), 2)

def search(trial):
    return {{'seed': trial.suggest_int('seed', 1, 1000)}}
"""
CLIENT = """#!{python} -SE
# A separate process for a number of devices, which JAX reads at import, and for programs ended by a signal.
import json, os, socket, sys
if 'JAX_NUM_CPU_DEVICES' in os.environ or {{'--distributed', 'explore', '-c'}} & {{*sys.argv}}:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, 'big')], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(3) or 1))
"""
NPLM = """#!/bin/bash
# The names of configs refer to the files of the small world.
words=()
for word; do
    name=${word%%:*}
    if [ -n "$name" ] && [ -f "configs/$name.py" ]; then word="configs/$name.py${word#"$name"}"; fi
    words+=("$word")
done
exec python -m nplm_jax.cli "${words[@]}"
"""
ADDRESS = 'python.socket'


class SmallWorld:
    """Creates folders for blocks of commands, and trains each of the runs that they use once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        rng = random.Random(1)
        text = '\n\n'.join(' '.join(rng.choices(SENTENCES, k=3)) for _ in range(30))
        (folder / 'DIR').mkdir()
        for name in ('my_text.txt', 'train.txt', 'valid.txt', 'test.txt', 'DIR/news.txt'):
            (folder / name).write_text(text)
        (folder / 'labels.txt').write_text('-\n|\nt\nh\ne\n')
        (folder / 'lexicon.txt').write_text('the t h e |\nhe h e |\n')
        (folder / 'references.txt').write_text('one the\n')
        self._write_reading_times(folder / 'times.csv', rng)
        unspaced_texts.write(folder, rng)
        for name in ('valid.npz', 'test.npz'):
            np.savez(folder / name, one=np.full((9, 5), np.log(0.2), np.float32))
        (folder / 'configs').mkdir()
        for name in ('ap_news', 'brown', 'sentences', 'text', 'wikitext2'):
            code = CONFIG.format(name=name, text=str(folder / 'my_text.txt'))
            (folder / 'configs' / f'{name}.py').write_text(code)
        (folder / 'launch.py').symlink_to(ROOT / 'launch.py')
        (folder / 'bin').mkdir()
        client = CLIENT.format(python=sys.executable, address=str(folder / ADDRESS))
        self._write_program('python', client)
        self._write_program('nplm', NPLM)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith('PYTEST_')}  # NiceGUI's tests
        self.env |= {'NPLM_JAX_CACHE': str(folder / 'cache'), 'PYTHONPATH': str(ROOT)}
        self.env |= {'PATH': f'{folder / "bin"}:{os.environ["PATH"]}', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
        self.env |= {'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
        self.server = subprocess.Popen([sys.executable, __file__, str(folder / ADDRESS)], env=self.env)

    def _write_reading_times(self, path: pathlib.Path, rng: random.Random) -> None:
        """Writes a table of 12 items with two sentences each, and a reading time for each word."""
        items = [' '.join(rng.choices(SENTENCES, k=2)).replace(' .', '.').replace(' ,', ',') for _ in range(12)]
        rows = (
            f'{item},{zone},"{word}",{rng.uniform(250, 400):.1f}'
            for item, text in enumerate(items, start=1)
            for zone, word in enumerate(text.split(), start=1)
        )
        path.write_text('\n'.join(['item,zone,word,rt', *rows]))

    def _write_program(self, name: str, text: str) -> None:
        path = self.folder / 'bin' / name
        path.write_text(text)
        path.chmod(0o755)

    def copy(self, folder: pathlib.Path, runs: set[str]) -> None:
        """Copies the world's files and the given trained runs, such as brown-mlp9, to a folder."""
        ignored = shutil.ignore_patterns('bin', 'cache', 'runs', ADDRESS)
        shutil.copytree(self.folder, folder, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        for name in runs:
            trained = self.folder / 'runs' / name
            if not trained.exists():
                self.run_bash(f'python launch.py --config=configs/{name.replace("-", ".py:")}', self.folder)
            shutil.copytree(trained, folder / 'runs' / name)

    def run_bash(self, script: str, folder: pathlib.Path) -> str:
        """Runs a script that may use `python` and `nplm`, and returns its output."""
        while not (self.folder / ADDRESS).exists():
            assert self.server.poll() is None
            time.sleep(0.1)
        bash = ['bash', '-euo', 'pipefail', '-c', script]
        done = subprocess.run(bash, cwd=folder, env=self.env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f'{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}'
        return done.stdout

    def close(self) -> None:
        """Ends the process from which commands are forked."""
        self.server.kill()
        self.server.wait()


def serve(address: str) -> None:
    """Runs each client's `python` command line in a fork of this process."""
    for name in (
        'matplotlib.figure',
        'nltk',
        'nplm_jax.inference.generation',
        'nplm_jax.cli.launched',
        'configs.default',
    ):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # avoids zombie processes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f'{address}.new')
        listener.listen(64)
        os.rename(f'{address}.new', address)
        while True:
            client, _ = listener.accept()
            if not os.fork():
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _answer(client)
            client.close()


def _answer(client: socket.socket) -> None:
    """Forks again to run the command, and sends its exit code to the client."""
    header, descriptors, *_ = socket.recv_fds(client, 4, 3)
    request = b''
    while len(request) < int.from_bytes(header, 'big'):
        request += client.recv(2**16)
    (option, *rest), folder, env = json.loads(request)
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        client.sendall(str(code).encode())
        return
    client.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = (open(number, 'w', 1, 'utf-8', closefd=False) for number in (1, 2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = folder
    if option == '-m':
        sys.argv = rest
        runpy.run_module(rest[0], run_name='__main__', alter_sys=True)
    else:
        sys.argv = [option, *rest]
        sys.path[0] = str(pathlib.Path(option).resolve().parent)
        runpy.run_path(option, run_name='__main__')


if __name__ == '__main__':
    serve(sys.argv[1])
