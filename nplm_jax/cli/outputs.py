"""Writes the output of commands to files or stdout, and checks output paths. This module does not import JAX."""

import argparse
import os
import shlex
from collections.abc import Mapping
from typing import Any

from nplm_jax.data.formats import COMPRESSED
from nplm_jax.reporting.text import to_json
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_atomically

EXISTS = 'already exists; choose another name or add --overwrite'  # for messages


def require_new(key: str, flags: argparse.Namespace, path: str | os.PathLike[str] = '') -> None:
    """Raises BadInput if an output file or a nonempty output folder exists, unless --overwrite is given.

    Args:
        key: The flag that names the path.
        flags: The flags, including `overwrite`.
        path: The file or folder. The default is the value of --output if it is a file.
    """
    found = expand(key, path or flags.output)
    is_taken = found.is_file() or (bool(path) and found.is_dir() and any(found.iterdir()))
    require(flags.overwrite or not is_taken, key, str(found), EXISTS)


def require_writable(key: str, path: str | os.PathLike[str], is_folder: bool = False, compresses: bool = False) -> None:
    """Raises BadInput unless a file or a folder can be written.

    Args:
        key: The flag that names the path.
        path: The file or folder. If it is missing, its parent folder must exist.
        is_folder: Whether the path is a folder.
        compresses: Whether the command compresses files by their suffix, such as `.gz`.
    """
    found = expand(key, path)
    is_plain = is_folder or compresses or found.suffix.lower() not in COMPRESSED
    require(is_plain, key, str(path), f'must not end in {found.suffix}, because the output is not compressed')
    is_other = found.is_dir() != is_folder and found.exists()
    require(not is_other, key, str(path), f'must be a {"folder" if is_folder else "file"}')
    folder = found if found.is_dir() else found.parent
    is_writable = folder.is_dir() and os.access(folder, os.W_OK)
    require(is_writable, key, str(path), f'the folder {folder} does not exist or is not writable')


def print_or_write(flags: argparse.Namespace, text: str) -> None:
    """Prints a text, or writes it to the file named by --output."""
    if flags.output:
        write_atomically(expand('--output', flags.output), f'{text}\n')
    else:
        print(text)


def print_results(flags: argparse.Namespace, results: Mapping[str, Any], table: str) -> None:
    """Prints a table or, with --json, the results as JSON. Writes the results and their provenance to --output."""
    from nplm_jax.reporting import provenance

    results = {**results, 'command': shlex.join(['nplm', *flags.typed]), **provenance.provenance()}
    print(to_json(results) if flags.json else table)
    if flags.output:
        write_atomically(expand('--output', flags.output), to_json(results, indent=2) + '\n')
