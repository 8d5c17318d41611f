"""Alternatives of Moses' n-best format: `id ||| words ||| scores ||| ...`, re-ranked by a model."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from nplm_jax.utils.errors import BadInput

SEPARATOR = ' ||| '


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A line of an n-best list.

    Attributes:
        fields: the fields of the line.
        scores: the numbers of its third field, if they are weighed in.
        log10_p: log10 P of its words by the model.
        total: what it is ranked by.
    """

    fields: Sequence[str]
    scores: Sequence[float] = ()
    log10_p: float = math.nan
    total: float = math.nan

    @property
    def words(self) -> str:
        """The text of the alternative."""
        return self.fields[1]


def parse_score_weights(text: str) -> list[float]:
    """Reads --score_weights. Raises BadInput for what is not numbers with commas between them."""
    try:
        weights = [float(number) for number in text.split(',')] if text else []
    except ValueError:
        weights = [math.nan]
    if not all(map(math.isfinite, weights)):
        raise BadInput(f'--score_weights={text!r}: must be finite numbers with commas between them')
    return weights


def parse(lines: Sequence[str], num_scores: int) -> list[Alternative]:
    """Reads alternatives.

    Args:
        lines: The lines of an n-best list.
        num_scores: How many numbers the third field of each has; 0 leaves it unread.

    Raises:
        BadInput: A line has another form; the message has its number.
    """
    alternatives = []
    for number, line in enumerate(lines, start=1):
        fields = line.split(SEPARATOR)
        if len(fields) < 2 or not fields[1].strip():
            raise BadInput(f'stdin:{number}: expected id{SEPARATOR}words')
        scores: list[float] = []
        if num_scores:
            texts = [x for x in (fields[2].split() if len(fields) > 2 else []) if not x.endswith('=')]
            try:
                scores = [float(x) for x in texts]
            except ValueError:
                scores = []
            if len(scores) != num_scores or any(map(math.isnan, scores)):
                numbers = 'a number' if num_scores == 1 else f'{num_scores} numbers'
                raise BadInput(f'stdin:{number}: expected id{SEPARATOR}words{SEPARATOR}{numbers}')
        alternatives.append(Alternative(fields, scores))
    return alternatives


def rank(
    alternatives: Sequence[Alternative], log10_p: Sequence[float], model_weight: float, weights: Sequence[float]
) -> list[Alternative]:
    """Returns the alternatives of each id together, best first; the ids keep the order of their first lines.

    Args:
        alternatives: The alternatives.
        log10_p: log10 P of each by the model.
        model_weight: The weight of log10 P.
        weights: The weights of the scores on the lines; without them `total` is log10 P.
    """
    scored = []
    for alternative, p in zip(alternatives, log10_p):
        total = model_weight * p + sum(w * s for w, s in zip(weights, alternative.scores)) if weights else p
        scored.append(dataclasses.replace(alternative, log10_p=float(p), total=float(total)))
    ranks = {key: i for i, key in enumerate(dict.fromkeys(a.fields[0] for a in scored))}
    return sorted(scored, key=lambda a: (ranks[a.fields[0]], -a.total))


def to_text(alternatives: Sequence[Alternative]) -> str:
    """Returns the lines with log10 P, and the total where scores were weighed in, appended."""
    lines = []
    for a in alternatives:
        totals = [f'{a.total:.8g}'] if a.scores else []
        lines.append(SEPARATOR.join([*a.fields, f'{a.log10_p:.8g}', *totals]))
    return '\n'.join(lines)


def to_dicts(alternatives: Sequence[Alternative]) -> list[dict[str, Any]]:
    """Returns the alternatives for JSON."""
    return [
        {'id': a.fields[0], 'words': a.words, 'fields': list(a.fields[2:]), 'log10_p': a.log10_p, 'total': a.total}
        for a in alternatives
    ]
