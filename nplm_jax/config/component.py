"""Declares the parts of a run: the base class, and fields that are config keys with their ranges and meanings."""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

KEY, MEANING, SECTION, BUILT, FILE = 'key', 'meaning', 'section', 'built', 'file'  # in the metadata of a field


class Check(NamedTuple):
    """A condition on a value.

    Attributes:
        allowed: What is allowed, for the error message.
        holds: Tells whether a value is allowed.
    """

    allowed: str
    holds: Callable[[Any], bool]


class Range(NamedTuple):
    """The condition that a number is finite and between bounds; unlike a `Check` it can be written to a file.

    Attributes:
        allowed: What is allowed, for the error message.
        least: The least value.
        most: The largest value.
        above: A value below all that are allowed.
        below: A value above all that are allowed.
        also: A value that is allowed besides.
    """

    allowed: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    also: float | None = None

    def holds(self, value: float) -> bool:
        """Returns whether a value is allowed."""
        is_between = self.least <= value <= self.most and self.above < value < self.below
        return value == self.also or (math.isfinite(value) and is_between)


def at_least(least: float) -> Range:
    """Returns the check of a finite number that has a least value."""
    return Range(f'must be {least} or more', least)


def between(least: float, most: float) -> Range:
    """Returns the check of a number that has a least and a largest value."""
    return Range(f'must be at least {least} and at most {most}', least, most)


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, Range('must be above 0 and finite', above=0)]
Share = Annotated[float, Range('must be at least 0 and below 1', 0, below=1)]


def key(default: Any, meaning: str, section: str = '', file_unless: tuple[str, ...] | None = None) -> Any:
    """Returns a field that declares a key: its default and its meaning, which the reference of keys shows.

    Args:
        default: The default.
        meaning: The meaning.
        section: The section of the key, if it is not that of the part: `recurrent`.
        file_unless: Of an output layer's key that names a file, of which a run keeps a copy: the values that name none.
    """
    file = {} if file_unless is None else {FILE: file_unless}
    return dataclasses.field(default=default, metadata={MEANING: meaning, SECTION: section, **file})


def shared(name: str) -> Any:
    """Returns a field with the value of a key that is declared elsewhere, by its flattened name: `optimizer.options`.

    In the section of the part, a field without default that has the key's name does the same.
    """
    return dataclasses.field(metadata={KEY: name})


def built(default: Any = None, repr: bool = True) -> Any:
    """Returns a field of a part that is no key: the code that makes the part sets it, or the part learns it.

    Args:
        default: Its default.
        repr: Whether the `repr` of the part shows it; False for thousands of values.
    """
    return dataclasses.field(default=default, repr=repr, metadata={BUILT: True})


def metadata_of(part: type, field: str, name: str) -> Any:
    """Returns metadata of a field from the class nearest to a part that has it; None for none.

    What `built` and `key` say of a field holds for that of a subclass too, as in `kind: str = 'mine'`.
    """
    fields = (vars(base).get('__dataclass_fields__', {}).get(field) for base in part.__mro__)
    return next((f.metadata[name] for f in fields if f and name in f.metadata), None)


class Part:
    """A part of a run; subclasses are frozen dataclasses.

    A field is a key in the section of the kind of part, such as `model`: of that name, or see `key` and
    `shared`. A field without default reads a key that another part declares.

    Attributes:
        also_reads: Flattened keys that are read by others where a run has this part.
    """

    also_reads: ClassVar[frozenset[str]] = frozenset()

    def check(self) -> None:
        """Raises BadInput if the values of the part are not allowed together."""
