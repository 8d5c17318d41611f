"""Shell integration: formats suggested command lines and prepares the standard streams."""

import io
import os
import pathlib
import re
import shlex
import shutil
import sys
from collections.abc import Iterable

_ROOT = pathlib.Path(__file__).parents[2]  # parent folder of the package


def python_command() -> str:
    """Returns `python` if the shell finds this interpreter under that name. Otherwise, returns its path."""
    on_path = shutil.which('python')
    folder = os.path.dirname(sys.executable)
    # Two environments may link to the same interpreter, so the folders must be equal too.
    if on_path and os.path.dirname(on_path) == folder and os.path.realpath(on_path) == os.path.realpath(sys.executable):
        return 'python'
    return sys.executable


def nplm_command() -> list[str]:
    """Returns the command that runs nplm: the `nplm` installed with this Python, or `python -m nplm_jax.cli`."""
    installed = shutil.which('nplm', path=os.path.dirname(sys.executable))
    if not installed:
        is_found = str(_ROOT) == os.getcwd() or _ROOT.name in ('site-packages', 'dist-packages')
        return [*([] if is_found else ['env', f'PYTHONPATH={_ROOT}']), python_command(), '-m', 'nplm_jax.cli']
    return ['nplm' if shutil.which('nplm') == installed else installed]


def command_line(words: Iterable[str | os.PathLike[str]]) -> str:
    """Joins words into a shell command line, with quotes where needed."""
    return shlex.join(map(str, words))


def hide_passwords(command: str) -> str:
    """Removes passwords from the URLs in a command line. Hides the value of --storage unless it is a URL.

    Examples:
        >>> hide_passwords('launch.py --storage=postgresql+psycopg://me:secret@host/trials')
        'launch.py --storage=postgresql+psycopg://me@host/trials'
        >>> hide_passwords('launch.py --storage=me:secret@host')
        'launch.py --storage=HIDDEN'
    """
    words = shlex.split(command)
    for i, word in enumerate(words):
        flag, equals, value = word.partition('=')
        if flag in ('--storage', '-storage') and equals:
            words[i] = f'{flag}={_hide(value)}'
        elif i and words[i - 1] in ('--storage', '-storage'):
            words[i] = _hide(word)
        elif '://' in word:
            word = re.sub(r'(?<=://)([^:/@]*):.*(?=@)', r'\1', word)
            words[i] = _PASSWORD_OPTION.sub('', word)
    return shlex.join(words)


_PASSWORD_OPTION = re.compile(r'(?<=[?&])(ssl)?password=[^&]*&?', re.IGNORECASE)
_URL = re.compile(r"""
    (?P<scheme> [\w+]+ :// )
    (?: (?P<user> [^:/@\s=]* ) (?: : [^@]* )? (?P<at> @ ) )?
    (?P<rest> [\w.\[\]:-]* (?: / [^\s=@?\#;]* )? (?: \? [^\s@]* )? )
    """, re.VERBOSE)  # fmt: skip


def _hide(url: str) -> str:
    """Removes the password from a database URL. Returns `HIDDEN` for any other text, because it may be a password."""
    if not (match := _URL.fullmatch(url)):
        return 'HIDDEN'
    return _PASSWORD_OPTION.sub('', f'{match["scheme"]}{match["user"] or ""}{match["at"] or ""}{match["rest"]}')


def find_modules_here() -> None:
    """Appends the working folder to the import path. Called only by commands, not when the package is imported."""
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)


def prepare_streams() -> None:
    """Makes reading stdin and printing to stdout and stderr safe.

    A stream that the shell has closed (`2>&-`) is replaced by os.devnull. Otherwise, a file opened later would reuse
    its file descriptor, and libraries would write log messages into that file. Stdout uses UTF-8, as do the files that
    commands write. Characters that stderr cannot encode, for example in ASCII or Latin-1, are escaped.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding='utf-8')
    for name in ('stdout', 'stderr'):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding='utf-8' if name == 'stdout' else None, errors='backslashreplace')
