"""What a visitor has chosen on the explorer's page, and its form in the address: a link restores the page."""

import dataclasses
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from nplm_jax.utils.errors import BadInput, require

MAX_COUNT = 50  # words listed
MAX_TEXT = 5000  # characters of a text; longer ones are cut, since every model reads it anew at each change
MAX_WORD = 200  # characters of the selected word
WEIGHT_DIGITS = 3  # of a weight in a link


class Field(NamedTuple):
    """A number that says how a text is continued; it may stay empty if it has no initial value."""

    label: str
    initial: float | None
    minimum: float
    maximum: float | None

    def read(self, text: str) -> float | None:
        """Returns the number that a link holds. Raises BadInput if it is none, or out of range."""
        if not text:
            return None
        return self.check(_number(self.label, text, whole=isinstance(self.minimum, int)), text)

    def check(self, value: Any, text: str = '') -> float:
        """Returns a number if it is in range; a browser sends any value. Raises BadInput otherwise.

        Args:
            value: The value.
            text: How it was written; empty for the value itself.
        """
        is_whole = isinstance(self.minimum, int)
        is_number = type(value) in (int, float) and abs(value) < 2**53 and (not is_whole or value == int(value))
        require(is_number, self.label, text or value, f'must be a {"whole " if is_whole else ""}number')
        in_range = self.minimum <= value and (self.maximum is None or value <= self.maximum)
        upper = '' if self.maximum is None else f' and at most {self.maximum}'
        require(in_range, self.label, text or value, f'must be at least {self.minimum}{upper}')
        return int(value) if is_whole else value


FIELDS = {
    'words': Field('words', 20, 1, 500),
    'samples': Field('samples', 3, 1, 50),
    'seed': Field('seed', 1, 0, 2**31 - 1),
    'temperature': Field('temperature', 1.0, 0.05, 10),
    'top_k': Field('top k', None, 1, None),
    'top_p': Field('top p', None, 0.01, 1),
}


@dataclasses.dataclass
class PageState:
    """What a visitor has chosen.

    Attributes:
        text: The text.
        word: The selected word.
        position: The place in the text of the word that is explained, from 0; None if there is none.
        count: How many words are listed.
        model: The model whose list the keyboard uses, counted with the mixture.
        source: The model that continues the text, counted with the mixture.
        weights: The mixture's weights; None for the mixture as it was loaded.
        numbers: The values of FIELDS.
    """

    text: str = ''
    word: str = ''
    position: int | None = None
    count: int = 10
    model: int = 0
    source: int = 0
    weights: tuple[float, ...] | None = None
    numbers: dict[str, float | None] = dataclasses.field(
        default_factory=lambda: {key: field.initial for key, field in FIELDS.items()}
    )

    def to_query(self) -> str:
        """Returns the query of a link, with all that differs from a new page; empty for a new page."""
        query = {
            'text': self.text.strip(),
            'word': self.word.strip(),
            'at': '' if self.position is None else str(self.position + 1),
            'list': '' if self.count == PageState.count else str(self.count),
            'model': str(self.model or ''),
            'source': str(self.source or ''),
            'weights': ','.join(f'{weight:.{WEIGHT_DIGITS}g}' for weight in self.weights or ()),
        }
        query = {key: text for key, text in query.items() if text}
        for key, value in self.numbers.items():
            if value != FIELDS[key].initial:
                query[key] = '' if value is None else str(int(value) if value == int(value) else value)
        return urllib.parse.urlencode(query, safe=',')

    @classmethod
    def from_query(cls, query: Mapping[str, str], num_models: int) -> Self:
        """Returns the state that a link holds. Raises BadInput if a value is impossible.

        Args:
            query: The link's query.
            num_models: The number of models without the mixture.
        """
        num_lists = num_models + (num_models > 1)
        state = cls(query.get('text', ''), query.get('word', ''))
        for key, text, most in (('text', state.text, MAX_TEXT), ('word', state.word, MAX_WORD)):
            if len(text) > most:
                raise BadInput(f'{key}: {len(text):,} characters; {most:,} at most')
        state.count = _index('list', query, 1, MAX_COUNT, cls.count)
        state.model = _index('model', query, 0, num_lists - 1, cls.model)
        state.source = _index('source', query, 0, num_lists - 1, cls.source)
        if query.get('at'):
            state.position = _index('at', query, 1, len(state.text) + 1, 1) - 1
        if query.get('weights'):
            state.weights = _weights(query['weights'], num_models)
        state.numbers |= {key: field.read(query[key]) for key, field in FIELDS.items() if key in query}
        return state


def _weights(text: str, num_models: int) -> tuple[float, ...] | None:
    """Returns a link's weights; None where only one model is loaded."""
    weights = tuple(_number('weights', weight, whole=False) for weight in text.split(','))
    require(len(weights) == num_models, 'weights', text, f'the page has {num_models} models')
    require(min(weights) >= 0 and sum(weights) > 0, 'weights', text, 'must be 0 or more, one of them above 0')
    return weights if num_models > 1 else None


def _index(key: str, query: Mapping[str, str], minimum: int, maximum: int, default: int) -> int:
    """Returns a whole number of a link."""
    if not query.get(key):
        return default
    value = int(_number(key, query[key], whole=True))
    require(minimum <= value <= maximum, key, query[key], f'must be {minimum} to {maximum}')
    return value


def _number(key: str, text: str, whole: bool) -> float:
    """Returns the number that a text holds. Raises BadInput if it holds none, or an infinite one."""
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise BadInput(f'{key}={text!r}: must be a {"whole " if whole else ""}number') from None
    require(abs(value) < 2**53, key, text, 'must be a finite number')  # False for nan as well
    return value
