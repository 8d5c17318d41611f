"""Checks the state of the explorer's page, and stores it in the URL of the page."""

import contextlib
import dataclasses
import typing
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any, Self

from nplm_jax.config.checked_fields import check_value
from nplm_jax.config.component import Check, Count, CountOrZero, NonNegative, between
from nplm_jax.utils.errors import require

MAX_COUNT = 50  # maximum number of listed words
MAX_TEXT = 5000  # maximum length of a text (characters), which every model rereads after each change
MAX_WORD = 200  # maximum length of the selected word (characters)
NUMBERS = ('words', 'samples', 'seed', 'temperature', 'top_k', 'top_p')  # settings of the continuations


def _shorter(most: int) -> Check:
    return Check(f'must contain at most {most:,} characters', lambda text: len(text) <= most)


@dataclasses.dataclass
class PageState:
    """A visitor's choices. A browser may send any value, so setting an invalid value raises BadInput.

    Attributes:
        text: The text.
        word: The selected word.
        position: The position of the explained word in the text, counted from 1. None if no word is explained.
        count: The number of listed words.
        model: The index in `LoadedModels.with_mixture` of the model whose list the keyboard controls.
        source: The index in `LoadedModels.with_mixture` of the model that continues the text.
        weights: The mixture weights. None for the initial mixture.
        words: The number of words in each continuation.
        samples: The number of continuations.
        seed: The random seed of the continuations.
        temperature: The sampling temperature. `generation.Choice` explains it, `top_k` and `top_p`.
    """

    text: Annotated[str, _shorter(MAX_TEXT)] = ''
    word: Annotated[str, _shorter(MAX_WORD)] = ''
    position: Count | None = None
    count: Annotated[int, between(1, MAX_COUNT)] = 10
    model: CountOrZero = 0
    source: CountOrZero = 0
    weights: tuple[NonNegative, ...] | None = None
    words: Annotated[int, between(1, 500)] = 20
    samples: Annotated[int, between(1, 50)] = 3
    seed: CountOrZero = 1
    temperature: Annotated[float, between(0.05, 10)] = 1.0
    top_k: Count | None = None
    top_p: Annotated[float, between(0.01, 1)] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if value is not None or getattr(type(self), name) is not None:
            kind = _KINDS[name]
            value = tuple(_read(x, kind, name) for x in value) if name == 'weights' else _read(value, kind, name)
        super().__setattr__(name, value)

    def to_query(self) -> str:
        """Returns the query of a link, which contains only the values that differ from those of a new page."""
        new = PageState()
        query = {name: value for name, value in vars(self).items() if value != getattr(new, name)}
        if self.weights:
            query['weights'] = ','.join(f'{weight:.3g}' for weight in self.weights)
        return urllib.parse.urlencode(query, safe=',')

    @classmethod
    def from_query(cls, query: Mapping[str, str], num_models: int) -> Self:
        """Returns the state stored in a link. Raises BadInput if a value is invalid.

        Args:
            query: The link's query.
            num_models: The number of models, not including the mixture.
        """
        state = cls()
        for name in _KINDS & query.keys():
            setattr(state, name, query[name].split(',') if name == 'weights' else query[name])
        last = num_models - 1 + (num_models > 1)
        for key in ('model', 'source'):
            require(getattr(state, key) <= last, key, query.get(key), f'must be between 0 and {last}')
        if state.weights is not None:
            fit = len(state.weights) == num_models and sum(state.weights) > 0
            require(
                fit,
                'weights',
                query['weights'],
                f'must contain one weight per model ({num_models}), with a positive sum',
            )
            state.weights = state.weights if num_models > 1 else None
        return state


def _kind(hint: Any) -> Any:
    """Returns the type and range of a choice, read from the annotation of its field.

    For the mixture weights, returns the type and range of one weight.
    """
    if type(None) in typing.get_args(hint):
        hint, _ = typing.get_args(hint)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else hint


_KINDS = {name: _kind(hint) for name, hint in typing.get_type_hints(PageState, include_extras=True).items()}


def _read(value: Any, kind: Any, name: str) -> Any:
    """Converts and checks a value. Input fields provide numbers as numbers, and links provide them as text."""
    if kind.__origin__ is not str:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            value = int(number) if kind.__origin__ is int and number.is_integer() else number
    return check_value(value, kind, name)
