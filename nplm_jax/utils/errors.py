"""Exceptions with one-line messages. This module does not import JAX."""

import os
import re
from collections.abc import Sequence
from typing import Any

_MAX_CHARACTERS = 1000  # maximum length of a message
_MAX_OF_PART = 300  # maximum length of the key, and of the value
_MAX_LISTED = 3  # maximum number of list items in a message


class BadInput(ValueError):
    """An error caused by invalid user input. The message is a single line, `KEY=VALUE: PROBLEM` or `KEY: PROBLEM`.

    Attributes:
        key: The name of the input: a config key, a flag, a file or a function argument.
        problem: A description of the error and of the allowed values.
        value: The value of the input, or `...` to omit it from the message.

    Examples:
        >>> print(BadInput('model.h', 'must be at least 0', value=-1))
        model.h=-1: must be at least 0
    """

    def __init__(self, key: str | os.PathLike[str], problem: str, value: Any = ...) -> None:
        self.key, self.problem = str(key), problem
        self.value = os.fspath(value) if isinstance(value, os.PathLike) else value
        super().__init__(self.key, self.problem, self.value)  # pickling needs all three

    def __str__(self) -> str:
        shown = '' if self.value is ... else f'={shorten(repr(self.value), _MAX_OF_PART)}'
        begin = f'{shorten(self.key, _MAX_OF_PART)}{shown}: '
        message = begin + shorten(self.problem, _MAX_CHARACTERS - len(begin))
        return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


class Resumable(OSError):
    """A failure of a disk, database or job. Running the same command again resumes from the saved state."""


class NonFiniteError(ArithmeticError):
    """Raised when a loss, a gradient or a parameter is not finite."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def status(error: BaseException) -> str:
    """Returns the status code of an XLA, TensorStore or gRPC error, such as `RESOURCE_EXHAUSTED`.

    These exceptions have no status field, but their messages begin with the code. For messages without a code, the
    result is ''.
    """
    match = re.match('([A-Z_]+): ', str(error))
    return match[1] if match else ''


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether the host or a device ran out of memory. XLA reports this only in the error message."""
    return isinstance(error, MemoryError) or bool(re.search('RESOURCE_EXHAUSTED|[Oo]ut of memory', str(error)))


def shorten(text: str, limit: int) -> str:
    """Shortens a text of more than `limit` characters by removing its middle, at word boundaries if possible.

    Examples:
        >>> shorten('one two three four five six', 20)
        'one two [... 10 characters ...] five six'
    """
    if len(text) <= limit:
        return text
    begin, end = text[: limit // 2], text[-(limit // 2) :]
    begin = begin[: begin.rfind(' ') + 1] or begin
    end = end[end.find(' ') :] if ' ' in end else end
    return f'{begin}[... {len(text) - len(begin) - len(end):,} characters ...]{end}'


def first_few(items: Sequence[str]) -> str:
    """Joins the first three items with semicolons, and appends the number of remaining items.

    Examples:
        >>> first_few(['a=1', 'b=2', 'c=3', 'd=4'])
        'a=1; b=2; c=3; and 1 more'
    """
    more = [f'and {len(items) - _MAX_LISTED:,} more'] if len(items) > _MAX_LISTED else []
    return '; '.join([*items[:_MAX_LISTED], *more])


def require(ok: bool, key: str, value: Any, problem: str) -> None:
    """Raises BadInput(key, problem, value) unless `ok` is true. `problem` states the allowed values."""
    if not ok:
        raise BadInput(key, problem, value=value)
