"""Trains three sentences by launch.py and prints the calls that nest from its `main` to the depth of an update.

python -m tests.nested_calls [--config.KEY=VALUE ...]
"""

import pathlib
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
UPDATE = 'training/step.py execute_steps'  # compiled; what it calls is called once, while JAX traces it


def deepest(*flags: str) -> list[str]:
    """Returns the longest chain of this package's functions, `FILE FUNCTION` each, in a process of its own."""
    command = [sys.executable, '-m', 'tests.nested_calls', *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split('CALLS\n')[1].splitlines()


def main() -> None:
    from nplm_jax.cli import launch  # noqa: PLC0415 (it defines flags)
    from nplm_jax.training import step  # noqa: PLC0415

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

    step.execute_steps = execute_watched
    with tempfile.TemporaryDirectory() as folder:
        flags = ['--config=configs/sentences.py', '--config.train.epochs=1', f'--workdir={folder}/run', *sys.argv[1:]]
        sys.argv = ['launch.py', *flags]  # where ml_collections looks for the overridden keys
        launch.main(launch.parse_flags(sys.argv))
    print('CALLS', *longest, sep='\n')


def name(frame: types.FrameType) -> str:
    """Returns `FILE FUNCTION` of a call of a named function of the repository, '' of another."""
    path, code = pathlib.Path(frame.f_code.co_filename), frame.f_code
    if not path.is_relative_to(ROOT) or path == pathlib.Path(__file__) or code.co_name.startswith('<'):
        return ''
    return f'{path.relative_to(ROOT).as_posix().removeprefix("nplm_jax/")} {code.co_qualname.replace(".<locals>", "")}'


def callers(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yields a frame and those that called it."""
    while frame:
        yield frame
        frame = frame.f_back


if __name__ == '__main__':
    main()
