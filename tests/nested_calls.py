"""Trains three sentences by launch.py and prints the calls that nest from its `main` to the depth of an update.

python -m tests.nested_calls [--config.KEY=VALUE ...]
"""

import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).parents[1]
UPDATE = 'training/step.py execute_steps'  # compiled; what it calls is called once, while JAX traces it


def deepest(*flags: str) -> list[str]:
    """Returns the longest chain of this package's functions, `FILE FUNCTION` each, in a process of its own."""
    command = [sys.executable, '-m', 'tests.nested_calls', *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split('CALLS\n')[1].splitlines()


def main() -> None:
    import launch  # noqa: PLC0415 (it defines flags)

    longest: list[str] = []
    stack: list[str] = []

    def watch(frame: types.FrameType, event: str, _: object) -> None:
        nonlocal longest
        path, name = pathlib.Path(frame.f_code.co_filename), frame.f_code.co_qualname
        if not path.is_relative_to(ROOT) or frame.f_code.co_name.startswith('<'):
            return
        if event == 'call':
            file = path.relative_to(ROOT).as_posix().removeprefix('nplm_jax/')
            stack.append(f'{file} {name.replace(".<locals>", "")}')
            if UPDATE in stack and len(stack) > len(longest):
                longest = list(stack)
        elif event == 'return' and stack:
            stack.pop()

    with tempfile.TemporaryDirectory() as folder:
        flags = ['--config=configs/sentences.py', '--config.train.epochs=1', f'--workdir={folder}/run', *sys.argv[1:]]
        sys.argv = ['launch.py', *flags]  # where ml_collections looks for the overridden keys
        argv = launch.parse_flags(sys.argv)
        sys.setprofile(watch)
        launch.main(argv)
        sys.setprofile(None)
    print('CALLS', *longest, sep='\n')


if __name__ == '__main__':
    main()
