"""What a visitor has chosen on the explorer's page, and its form in the address: a link restores the page."""

import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field

from nplm_jax.utils.errors import BadInput, require

MAX_COUNT = 50  # words listed
MAX_TEXT = 5000  # characters of a text; longer ones are cut, since every model reads it anew at each change
MAX_WORD = 200  # characters of the selected word
NUMBERS = ('words', 'samples', 'seed', 'temperature', 'top_k', 'top_p')  # they say how a text is continued


def _split(weights: Any) -> Any:
    return weights.split(',') if isinstance(weights, str) else weights


class PageState(pydantic.BaseModel):
    """What a visitor has chosen. A browser sends any value; an impossible one is refused when it is set.

    Attributes:
        text: The text.
        word: The selected word.
        position: The place in the text of the word that is explained, from 1; None if there is none.
        count: How many words are listed.
        model: The model whose list the keyboard uses, counted with the mixture.
        source: The model that continues the text, counted with the mixture.
        weights: The mixture's weights; None for the mixture as it was loaded.
        words: The number of words of a continuation.
        samples: The number of continuations.
        seed: Their seed.
        temperature: See `generation.Choice`, also for `top_k` and `top_p`.
    """

    model_config = pydantic.ConfigDict(validate_assignment=True, allow_inf_nan=False)

    text: Annotated[str, Field(max_length=MAX_TEXT)] = ''
    word: Annotated[str, Field(max_length=MAX_WORD), pydantic.StringConstraints(strip_whitespace=True)] = ''
    position: Annotated[int | None, Field(ge=1)] = None
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 10
    model: Annotated[int, Field(ge=0)] = 0
    source: Annotated[int, Field(ge=0)] = 0
    weights: Annotated[tuple[Annotated[float, Field(ge=0)], ...] | None, pydantic.BeforeValidator(_split)] = None
    words: Annotated[int, Field(ge=1, le=500)] = 20
    samples: Annotated[int, Field(ge=1, le=50)] = 3
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    temperature: Annotated[float, Field(ge=0.05, le=10)] = 1
    top_k: Annotated[int | None, Field(ge=1)] = None
    top_p: Annotated[float | None, Field(ge=0.01, le=1)] = None

    def to_query(self) -> str:
        """Returns the query of a link, with all that differs from a new page; empty for a new page."""
        query = self.model_dump(exclude_defaults=True)
        if self.weights:
            query['weights'] = ','.join(f'{weight:.3g}' for weight in self.weights)
        return urllib.parse.urlencode(query, safe=',')

    @classmethod
    def from_query(cls, query: Mapping[str, str], num_models: int) -> Self:
        """Returns the state that a link holds. Raises BadInput if a value is impossible.

        Args:
            query: The link's query.
            num_models: The number of models without the mixture.
        """
        try:
            state = cls.model_validate(dict(query))
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            raise BadInput(str(problem['loc'][0]), problem['msg'], value=problem['input']) from None
        last = num_models - 1 + (num_models > 1)
        for key in ('model', 'source'):
            require(getattr(state, key) <= last, key, query.get(key), f'must be 0 to {last}')
        if state.weights is not None:
            fit = len(state.weights) == num_models and sum(state.weights) > 0
            require(fit, 'weights', query['weights'], f'the page has {num_models} models, one of them above 0')
            state.weights = state.weights if num_models > 1 else None
        return state
