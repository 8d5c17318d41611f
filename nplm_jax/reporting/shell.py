"""Command lines that a user can copy, and the streams that a shell gives to this process."""

import io
import os
import pathlib
import re
import shlex
import shutil
import sys
from collections.abc import Iterable

_ROOT = pathlib.Path(__file__).parents[2]  # the folder with the package


def python_command() -> str:
    """Returns `python` where the shell finds this interpreter by that name, else the interpreter's path."""
    on_path = shutil.which('python')
    folder = os.path.dirname(sys.executable)
    # Two environments may link to one interpreter: the folders have to be the same as well.
    if on_path and os.path.dirname(on_path) == folder and os.path.realpath(on_path) == os.path.realpath(sys.executable):
        return 'python'
    return sys.executable


def nplm_command() -> list[str]:
    """Returns the words that call `nplm`: the command installed beside this Python, else the module."""
    installed = shutil.which('nplm', path=os.path.dirname(sys.executable))
    if not installed:
        is_found = str(_ROOT) == os.getcwd() or _ROOT.name in ('site-packages', 'dist-packages')
        return [*([] if is_found else ['env', f'PYTHONPATH={_ROOT}']), python_command(), '-m', 'nplm_jax.cli']
    return ['nplm' if shutil.which('nplm') == installed else installed]


def command_line(words: Iterable[str | os.PathLike[str]]) -> str:
    """Returns the words as one line for a shell, quoted where needed."""
    return shlex.join(map(str, words))


def hide_passwords(command: str) -> str:
    """Returns a command line without the passwords of its URLs. The value of --storage is hidden if it is no URL.

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
    """Returns the URL of a database without its password; `HIDDEN` for any other text, which may be a password."""
    if not (match := _URL.fullmatch(url)):
        return 'HIDDEN'
    return _PASSWORD_OPTION.sub('', f'{match["scheme"]}{match["user"] or ""}{match["at"] or ""}{match["rest"]}')


def find_modules_here() -> None:
    """Lets this process import modules of the working folder, after all others; only commands call it."""
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)


def prepare_streams() -> None:
    """Makes printing to stdout and stderr safe.

    Where the shell closed one (`2>&-`), os.devnull is opened: else a file that is opened later would have the number of
    the closed stream, and libraries would log into it. Stdout is UTF-8, as the files of every command are. A character
    that the encoding of stderr lacks, as ASCII and Latin-1 do, is escaped.
    """
    for name in ('stdout', 'stderr'):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding='utf-8' if name == 'stdout' else None, errors='backslashreplace')
