"""The one exception that a user's mistake raises."""

from typing import Any


class BadInput(ValueError):
    """Something the user gave cannot be used; the message is one line that says what to give."""


def require(ok: bool, key: str, value: Any, allowed: str) -> None:
    """Raises BadInput naming `key`, its `value` and what is `allowed`, unless `ok`."""
    if not ok:
        raise BadInput(f'{key}={value!r}: {allowed}')
