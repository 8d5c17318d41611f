"""Defines the base class of components and the dataclass fields that declare config keys, ranges and meanings."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

# Entries of a dataclass field's metadata. MEANING, DEFAULT and NEEDS: the description of a config key, its default, and
# the condition under which a run has the key. KIND: the kind of component that the field holds. INTERNAL: whether the
# field is set only in code. FILE: for a key whose value may be a file name, the values that are not file names.
MEANING, DEFAULT, NEEDS, KIND, INTERNAL, FILE = 'meaning', 'default', 'needs', 'kind', 'internal', 'file'
Needs = Callable[[Any, Any], bool]  # arguments: the section and the settings, both partly built


class Check(NamedTuple):
    """A condition on a value.

    Attributes:
        allowed: A description of the constraint, for error messages.
        holds: A function that returns whether a value is allowed.
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
    """Returns a check that a number is finite and within bounds.

    Args:
        allowed: The constraint, for error messages.
        least: The inclusive lower bound.
        most: The inclusive upper bound.
        above: The exclusive lower bound.
        below: The exclusive upper bound.
        also: A value outside the bounds that is also allowed.
    """

    def holds(value: float) -> bool:
        is_between = least <= value <= most and above < value < below
        return value == also or (math.isfinite(value) and is_between)

    return Check(allowed, holds)


def at_least(least: float) -> Check:
    """Returns a check that a number is finite and no less than `least`."""
    return in_range(f'must be at least {least}', least)


def between(least: float, most: float) -> Check:
    """Returns a check that a number is no less than `least` and no greater than `most`."""
    return in_range(f'must be at least {least} and at most {most}', least, most)


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, in_range('must be positive and finite', above=0)]
Share = Annotated[float, in_range('must be at least 0 and less than 1', 0, below=1)]


def key(
    default: Any,
    meaning: str,
    needs: Needs | None = None,
    by_hand: Any = dataclasses.MISSING,
    file_unless: tuple[str, ...] | None = None,
) -> Any:
    """Returns a dataclass field that is a config key.

    Args:
        default: The default value of the key in a config.
        meaning: The description of the key, shown by `--print_config`.
        needs: The condition under which a run has the key, or None if every run has the key.
        by_hand: The default value of the field if a component is constructed in code rather than from a config. If this
            argument is omitted, both defaults are the same.
        file_unless: For a key of an output layer whose value may be a file name: the values that are not file names.
            A run keeps a copy of the file. None for all other keys.
    """
    of_code = default if by_hand is dataclasses.MISSING else by_hand
    metadata = {MEANING: meaning, DEFAULT: default, NEEDS: needs, FILE: file_unless}
    return dataclasses.field(default=of_code, metadata=metadata)


def chosen(kind: str, needs: Needs | None = None) -> Any:
    """Returns a dataclass field that holds a component.

    Args:
        kind: The config key that chooses the component, such as `model.family`. The other keys of the component are in
            the same section.
        needs: The condition under which a run has the component, or None if every run has it.
    """
    return dataclasses.field(default=None, metadata={KIND: kind, NEEDS: needs})


def internal(default: Any = None, repr: bool = True) -> Any:
    """Returns a dataclass field of a component that is not a config key, because its value is set or learned by code.

    Args:
        default: The default value.
        repr: Whether the component's `repr` includes the field; False for large values.
    """
    return dataclasses.field(default=default, repr=repr, metadata={INTERNAL: True})


def metadata_of(component: type, field: str, name: str) -> Any:
    """Returns the entry `name` of a field's metadata, or None if there is no such entry.

    The base classes are searched too. A subclass that only changes a default, as in `learning_rate: float = 0.003`,
    therefore inherits the metadata of the field.
    """
    fields = (vars(base).get('__dataclass_fields__', {}).get(field) for base in component.__mro__)
    return next((f.metadata[name] for f in fields if f and name in f.metadata), None)


def key_fields(section: type) -> Iterator[dataclasses.Field[Any]]:
    """Yields the dataclass fields that hold config keys, nested sections or components, but no internal fields."""
    for field in dataclasses.fields(section):
        if field.init and not metadata_of(section, field.name, INTERNAL):
            yield field


@dataclasses.dataclass(frozen=True)
class Component:
    """A part of a run, such as a body or an optimizer, that a config chooses by name.

    Subclasses are frozen dataclasses. Each field has a default and is a config key in the component's section, such as
    `model`; see `key`.

    Attributes:
        name: The name in a config, such as `lstm` or the import path of a plug-in.
    """

    name: str = dataclasses.field(default='', repr=False, compare=False, kw_only=True, metadata={INTERNAL: True})

    def check(self) -> None:
        """Raises BadInput if the values of the fields are incompatible."""
