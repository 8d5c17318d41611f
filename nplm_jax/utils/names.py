"""Checks of names: what is allowed, and the nearest name to a wrong one."""

import difflib
from collections.abc import Iterable
from typing import Any

from nplm_jax.utils.errors import require


def require_one_of(key: str, value: Any, allowed: Iterable[Any], more: str = '') -> None:
    """Raises BadInput, which lists the allowed names and suggests the nearest one, unless `value` is one of them.

    Args:
        key: What the value is of.
        value: The value.
        allowed: The names.
        more: What is allowed besides, such as `, or a path`; it is said and not checked.
    """
    names = list(allowed)
    shown = list(map(str, names))
    require(value in names, key, value, f'must be one of {", ".join(shown)}{more}{did_you_mean(value, shown)}')


def did_you_mean(name: Any, allowed: Iterable[str], prefix: str = '', dotted: bool = False) -> str:
    """Returns the end of a message that refuses a name: `; did you mean NAME?`; '' if no allowed name is near.

    Args:
        name: The wrong name.
        allowed: The names that are allowed.
        prefix: What stands before a suggested name, such as `--`.
        dotted: Whether the names are keys, `section.key`. Then keys of this name in other sections are meant, else the
            nearest key of the section, and of all sections if there is no such section.

    Examples:
        >>> did_you_mean('lsmt', ['rnn', 'gru', 'lstm'])
        '; did you mean lstm?'
        >>> did_you_mean('modle.h', ['model.h', 'corpus.path'], prefix='--', dotted=True)
        '; did you mean --model.h?'
    """
    known, name = list(allowed), str(name).lower()
    section, dot, last = name.rpartition('.') if dotted else ('', '', name)

    def end_of(known_name: str) -> str:
        return known_name.lower().rpartition('.')[2] if dotted else known_name.lower()

    near = [each for each in known if end_of(each) == last]
    if not near:
        peers = [each for each in known if each.startswith(section + dot)] or known
        nearest = difflib.get_close_matches(last, map(end_of, peers), n=1)
        near = [each for each in peers if end_of(each) in nearest]
    return f'; did you mean {" or ".join(prefix + each for each in near)}?' if near else ''
