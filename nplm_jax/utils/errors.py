"""The exceptions that end a run in one line. Imports no JAX, so that catching them does not either."""

from typing import Any

_MAX_CHARACTERS = 1000  # of a message, which may quote a long value


class BadInput(ValueError):
    """The user gave something that cannot be used; the message is one printable line that says what to give."""

    def __init__(self, message: str) -> None:
        """Shortens a long message in its middle and escapes what is not printable."""
        if len(message) > _MAX_CHARACTERS:
            message = f'{message[: _MAX_CHARACTERS // 2]} ... {message[-_MAX_CHARACTERS // 2 :]}'
        super().__init__(''.join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


class NonFiniteError(ArithmeticError):
    """A loss, a gradient or a parameter is not finite.

    Attributes:
        seen_at: The update after which it was seen; its cause may be in an earlier update. None outside training.
    """

    def __init__(self, message: str, seen_at: int | None = None) -> None:
        super().__init__(message)
        self.seen_at = seen_at


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the exception's type where the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def require(ok: bool, key: str, value: Any, allowed: str) -> None:
    """Raises BadInput with `key`, its `value` and what is `allowed`, unless `ok`."""
    if not ok:
        raise BadInput(f'{key}={value!r}: {allowed}')
