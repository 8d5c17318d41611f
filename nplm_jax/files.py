"""Writing files so that a kill or a full disk never leaves half of one."""

from __future__ import annotations

import os
import pathlib


def write_atomically(path: pathlib.Path, data: str | bytes) -> None:
    """Writes under a temporary name beside `path`, flushes to the disk and renames; text as UTF-8.

    Raises: OSError when the disk does; an earlier file at `path` is then as it was.
    """
    temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    try:
        with temporary.open('wb') as file:
            file.write(data.encode('utf-8') if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
