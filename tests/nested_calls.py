"""Trains three sentences by launch.py and prints the calls that nest from its `main` to the depth of an update.

python -m tests.nested_calls [--config.KEY=VALUE ...]
"""

import functools
import pathlib
import sys
import tempfile
import types
from collections.abc import Iterator

import jax

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / 'tests'))  # for `python -m`
from helpers import launch  # noqa: E402

from nplm_jax.training import step  # noqa: E402

UPDATE = 'training/step.py train_steps'  # compiled; what it calls is called once, while JAX traces it


@functools.cache
def deepest(*flags: str) -> list[str]:
    """Returns the longest chain of this package's functions, `FILE FUNCTION` each."""
    execute_steps = step.execute_steps
    longest: list[str] = []
    stack: list[str] = []

    def watch(frame: types.FrameType, event: str, _: object) -> None:
        nonlocal longest
        if (call := name(frame)) and event == 'call':
            stack.append(call)
            longest = max(stack.copy(), longest, key=len)  # the later of equals: the loss, not a check
        elif call and event == 'return':
            stack.pop()

    def execute_watched(*args: object) -> object:
        stack[:] = reversed(list(filter(None, map(name, callers(sys._getframe(1))))))
        sys.setprofile(watch)  # from here on alone: it is slow
        try:
            return execute_steps(*args)
        finally:
            sys.setprofile(None)

    jax.clear_caches()  # else JAX does not trace what it compiled before
    step.execute_steps = execute_watched
    try:
        with tempfile.TemporaryDirectory() as folder:
            small = ('--config=configs/sentences.py', '--config.train.epochs=1', f'--workdir={folder}/run')
            done = launch(*small, *flags)
    finally:
        step.execute_steps = execute_steps
    assert done.returncode == 0, done.stderr
    return longest


def name(frame: types.FrameType) -> str:
    """Returns `FILE FUNCTION` of a call of a named function of the program, '' of another."""
    return name_of(frame.f_code)


@functools.cache  # asked at every call
def name_of(code: types.CodeType) -> str:
    """Returns the name of the calls of some code."""
    path = pathlib.Path(code.co_filename)
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / 'tests') or code.co_name.startswith('<'):
        return ''
    return f'{path.relative_to(ROOT).as_posix().removeprefix("nplm_jax/")} {code.co_qualname.replace(".<locals>", "")}'


def callers(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yields a frame and those that called it."""
    while frame:
        yield frame
        frame = frame.f_back


if __name__ == '__main__':
    print(*deepest(*sys.argv[1:]), sep='\n')
