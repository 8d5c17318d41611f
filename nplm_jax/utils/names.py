"""Validates names, and suggests similar names if a name is misspelled."""

import difflib
from collections.abc import Iterable
from typing import Any

from nplm_jax.utils.errors import require


def require_one_of(key: str, value: Any, allowed: Iterable[Any], more: str = '') -> None:
    """Raises BadInput unless `value` is an allowed name. The message lists the names and suggests a similar name.

    Args:
        key: The name of the config key, flag or argument.
        value: The value.
        allowed: The allowed names.
        more: A description of other allowed values, such as `, or a path`, which is appended to the list of names. The
            caller must check for these values.
    """
    names = list(allowed)
    shown = list(map(str, names))
    require(value in names, key, value, f'must be one of {", ".join(shown)}{more}{did_you_mean(value, shown)}')


def did_you_mean(name: Any, allowed: Iterable[str], prefix: str = '', dotted: bool = False) -> str:
    """Returns a suggestion to append to an error message, `; did you mean NAME?`, or '' if there is no similar name.

    Args:
        name: The unknown name.
        allowed: The allowed names.
        prefix: The prefix of suggested names, such as `--`.
        dotted: Whether the names are config keys, `section.key`. If other sections have a key of this name, the
            function suggests those keys. Otherwise, it suggests the most similar key in the same section, or in all
            sections if the section does not exist.

    Examples:
        >>> did_you_mean('lsmt', ['rnn', 'gru', 'lstm'])
        '; did you mean lstm?'
        >>> did_you_mean('modle.h', ['model.h', 'corpus.path'], prefix='--', dotted=True)
        '; did you mean --model.h?'
        >>> did_you_mean('lmpls', ['lmplz', 'lmplz'])  # a preset and a component
        '; did you mean lmplz?'
    """
    known, name = list(dict.fromkeys(allowed)), str(name).lower()
    section, dot, last = name.rpartition('.') if dotted else ('', '', name)

    def end_of(known_name: str) -> str:
        return known_name.lower().rpartition('.')[2] if dotted else known_name.lower()

    near = [each for each in known if end_of(each) == last]
    if not near:
        peers = [each for each in known if each.startswith(section + dot)] or known
        nearest = difflib.get_close_matches(last, map(end_of, peers), n=1)
        near = [each for each in peers if end_of(each) in nearest]
    return f'; did you mean {" or ".join(prefix + each for each in near)}?' if near else ''
