"""Command lines that a user can copy, and the streams that a shell gives to this process."""

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
    """Returns a command line without the passwords of its URLs.

    Examples:
        >>> hide_passwords('launch.py --storage=postgresql+psycopg://me:secret@host/trials')
        'launch.py --storage=postgresql+psycopg://me@host/trials'
    """
    words = (re.sub(r'(?<=://)([^:/@]*):.*(?=@)', r'\1', word) for word in shlex.split(command))
    return shlex.join(
        re.sub(r'(?<=[?&])(ssl)?password=[^&]*&?', '', word, flags=re.I) if '://' in word else word for word in words
    )


def open_closed_streams() -> None:
    """Opens os.devnull as stdout or stderr where the shell closed it (`2>&-`), so that printing does not fail.

    Else a file that is opened later would have the number of the closed stream, and libraries would log into it.
    """
    for name in ('stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
