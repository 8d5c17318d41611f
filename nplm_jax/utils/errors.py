"""The exceptions that end a run in one line. Does not import JAX."""

from typing import Any

_MAX_CHARACTERS = 1000  # of a message, which may quote a long value


class BadInput(ValueError):
    """The user's input cannot be used; the message is one printable line that says what is allowed."""

    def __init__(self, message: str) -> None:
        """Shortens a long message in its middle and escapes unprintable characters."""
        if len(message) > _MAX_CHARACTERS:
            message = f'{message[: _MAX_CHARACTERS // 2]} ... {message[-_MAX_CHARACTERS // 2 :]}'
        super().__init__(''.join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


class NonFiniteError(ArithmeticError):
    """A loss, a gradient or a parameter is not finite."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the exception's type where the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def require(ok: bool, key: str, value: Any, message: str) -> None:
    """Raises BadInput with `key`, its `value` and a message that says what is allowed, unless `ok`."""
    if not ok:
        raise BadInput(f'{key}={value!r}: {message}')
