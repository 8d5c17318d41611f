"""The one exception that a user's mistake raises."""

from typing import Any

_LONGEST = 1000  # characters of a message, whatever of the user's it quotes


class BadInput(ValueError):
    """Something the user gave cannot be used; the message is one line that says what to give."""

    def __init__(self, message: str):
        if len(message) > _LONGEST:
            message = f'{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}'
        super().__init__(''.join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


def first_line(error: BaseException) -> str:
    """What another library's exception says, less all lines but the first; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def require(ok: bool, key: str, value: Any, allowed: str) -> None:
    """Raises BadInput naming `key`, its `value` and what is `allowed`, unless `ok`."""
    if not ok:
        raise BadInput(f'{key}={value!r}: {allowed}')
