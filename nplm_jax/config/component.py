"""Declares components of a run: the base class, and fields that are config keys with their ranges and meanings."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

# In the metadata of a field: the meaning and the default of a key, the condition under which it exists, the kind of
# component that it holds, whether it is built by code, the values of a key for a file that name no file.
MEANING, DEFAULT, NEEDS, KIND, BUILT, FILE = 'meaning', 'default', 'needs', 'kind', 'built', 'file'
Needs = Callable[[Any, Any], bool]  # of the section and of the settings, as far as they are built


class Check(NamedTuple):
    """A condition on a value.

    Attributes:
        allowed: What is allowed, for the error message.
        holds: Tells whether a value is allowed.
    """

    allowed: str
    holds: Callable[[Any], bool]


def in_range(
    allowed: str,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    also: float | None = None,
) -> Check:
    """Returns the check of a finite number between bounds.

    Args:
        allowed: What is allowed, for the error message.
        least: The least value.
        most: The largest value.
        above: A value below all that are allowed.
        below: A value above all that are allowed.
        also: A value that is allowed besides.
    """

    def holds(value: float) -> bool:
        is_between = least <= value <= most and above < value < below
        return value == also or (math.isfinite(value) and is_between)

    return Check(allowed, holds)


def at_least(least: float) -> Check:
    """Returns the check of a finite number that has a least value."""
    return in_range(f'must be {least} or more', least)


def between(least: float, most: float) -> Check:
    """Returns the check of a number that has a least and a largest value."""
    return in_range(f'must be at least {least} and at most {most}', least, most)


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, in_range('must be above 0 and finite', above=0)]
Share = Annotated[float, in_range('must be at least 0 and below 1', 0, below=1)]


def key(
    default: Any,
    meaning: str,
    needs: Needs | None = None,
    by_hand: Any = dataclasses.MISSING,
    file_unless: tuple[str, ...] | None = None,
) -> Any:
    """Returns a field that is a config key: its default and its meaning, which `--print_config` shows.

    Args:
        default: The default.
        meaning: The meaning.
        needs: The condition under which a run has the key.
        by_hand: The default where code makes the component, if it is another one.
        file_unless: Of an output layer's key that names a file, of which a run keeps a copy: the values that name none.
    """
    of_code = default if by_hand is dataclasses.MISSING else by_hand
    metadata = {MEANING: meaning, DEFAULT: default, NEEDS: needs, FILE: file_unless}
    return dataclasses.field(default=of_code, metadata=metadata)


def chosen(kind: str, needs: Needs | None = None) -> Any:
    """Returns a field that holds the component that a key names, such as `model.family`; its keys have that section."""
    return dataclasses.field(default=None, metadata={KIND: kind, NEEDS: needs})


def built(default: Any = None, repr: bool = True) -> Any:
    """Returns a field of a component that is no key: code sets it, or the component learns it.

    Args:
        default: Its default.
        repr: Whether the `repr` of the component shows it; False for thousands of values.
    """
    return dataclasses.field(default=default, repr=repr, metadata={BUILT: True})


def metadata_of(component: type, field: str, name: str) -> Any:
    """Returns metadata of a field from the class nearest to a component that has it; None for none.

    What `built` and `key` say of a field holds for that of a subclass too, as in `learning_rate: float = 0.003`.
    """
    fields = (vars(base).get('__dataclass_fields__', {}).get(field) for base in component.__mro__)
    return next((f.metadata[name] for f in fields if f and name in f.metadata), None)


def key_fields(section: type) -> Iterator[dataclasses.Field[Any]]:
    """Yields the fields of a section or component that are keys, sections or components."""
    for field in dataclasses.fields(section):
        if field.init and not metadata_of(section, field.name, BUILT):
            yield field


@dataclasses.dataclass(frozen=True)
class Component:
    """A part of a run that a config chooses by name; subclasses are frozen dataclasses.

    A field is a key in the section of the kind of component, such as `model`; see `key`. Each field has a default.

    Attributes:
        name: The name by which a config chooses it, such as `lstm` or the import path of a plug-in.
    """

    name: str = dataclasses.field(default='', repr=False, compare=False, kw_only=True, metadata={BUILT: True})

    def check(self) -> None:
        """Raises BadInput if the values of the component are not allowed together."""
