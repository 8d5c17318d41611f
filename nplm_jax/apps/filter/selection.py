"""Scores documents, and selects documents by bounds on their perplexity.

Dims: D documents in a batch.
"""

import collections
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm

from nplm_jax.apps.filter import documents
from nplm_jax.apps.filter.distribution import Distribution, quantile
from nplm_jax.apps.filter.documents import Batch, Layout
from nplm_jax.data import text_files, unspaced_scripts
from nplm_jax.data.prepared_texts import facts
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.inference import scoring
from nplm_jax.runs.command_models import LoadedModels
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.progress import progress_bar

_COUNTS = 'documents', 'empty', 'unknown', 'words', 'oovs'  # see `Scorer.score`

Scored = Iterator[tuple[Batch, np.ndarray]]
"""Batches with the perplexity of each document; the perplexity is NaN if the document has no words."""


class Bound(NamedTuple):
    """A bound on the perplexity, given as a perplexity or as a share of the documents."""

    value: float
    is_share: bool

    def resolve(self, sorted_D: np.ndarray) -> float:
        """Converts the bound to a perplexity. A share is converted to a quantile of the perplexities `sorted_D`."""
        return quantile(sorted_D, self.value) if self.is_share else self.value


class Scorer:
    """Scores documents in the same way as `nplm score`.

    Attributes:
        models: The model.
        tokens: How to tokenize text. See `words.reading`.
        end: The tokens scored at the end of a line: `<p>`, a newline or none.
    """

    def __init__(self, models: LoadedModels, tokens: str = '', end: bool = False) -> None:
        """Creates a scorer. Raises BadInput if line ends are scored and the model has no mark for them."""
        self.models, self.tokens = models, tokens
        self.end = models.vocabulary.decode(models.line_start.end) if end else []
        problem = "requires paragraph marks (<p>) or newlines in the run's training text"
        require(bool(self.end) or not end, '--end', True, problem)
        reading(models.vocabulary.tokenizer, tokens)  # rejects --tokens before a file is read

    def score(self, texts: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
        """Scores documents, with each line scored separately.

        Args:
            texts: The texts of the documents.

        Returns:
            The perplexity of each document (float64), and counts by name. The perplexity is NaN for a document without
            words, and infinite for a document without known words. The counts are `documents` (with words), `empty`
            (documents without words), `unknown` (documents without known words), `words`, and `oovs` (words outside the
            vocabulary).
        """
        vocabulary = self.models.vocabulary
        lines = [unspaced_scripts.join(vocabulary, self.models.split_lines(text.removesuffix('\n'))) for text in texts]
        words = self.models.tokenize_lines([*itertools.chain.from_iterable(lines)], self.tokens)
        ids = [vocabulary.encode([*line, *self.end]) for line in words]
        scored = scoring.score(self.models.mixture, ids, self.models.line_start)
        perplexities_D = np.full(len(texts), math.nan)
        counts = dict.fromkeys(_COUNTS, 0)
        stops = list(itertools.accumulate(map(len, lines), initial=0))
        for i, span in enumerate(map(slice, stops, stops[1:])):
            if not any(words[span]):
                counts['empty'] += 1
                continue
            total = scoring.total(scored[span])
            is_known = any(vocabulary.ids.get(word, RARE_ID) != RARE_ID for line in words[span] for word in line)
            perplexities_D[i] = total.perplexity if is_known else math.inf
            counts['documents'] += 1
            counts['unknown'] += not is_known
            counts['words'] += total.tokens
            counts['oovs'] += total.oovs
        return perplexities_D, counts


@dataclasses.dataclass
class Job:
    """The files to score, and the files to write.

    Attributes:
        files: The files to score.
        outputs: The output path of each file that has an output.
        layout: The layout of the files.
        scorer: The model.
        above: The lowest perplexity to keep. None for no bound.
        below: The exclusive upper bound of the perplexities to keep. None for no bound.
        found: The perplexities of all documents that contain at least one word. Filled in by `run`.
    """

    files: Sequence[pathlib.Path]
    outputs: Mapping[pathlib.Path, pathlib.Path]
    layout: Layout
    scorer: Scorer
    above: Bound | None = None
    below: Bound | None = None
    found: Distribution = dataclasses.field(default_factory=Distribution)

    def run(self) -> dict[str, Any]:
        """Writes the documents within the bounds. Returns the counts of `Scorer.score`, the bounds, and `files`.

        Raises:
            BadInput: A file is damaged, or changes while it is read.
        """
        counts = collections.Counter(dict.fromkeys(_COUNTS, 0))
        known: dict[pathlib.Path, tuple[tuple[int, ...], list[np.ndarray]]] = {}
        written = []
        with progress_bar(sum(map(text_files.size, self.files)), 'scoring', ' bytes') as bar:
            if any(bound and bound.is_share for bound in (self.above, self.below)):
                for file in self.files:
                    known[file] = facts(file), [scores_D for _, scores_D in self._score(file, counts, bar)]
            sorted_D = self.found.perplexities()
            low = self.above.resolve(sorted_D) if self.above else 0.0
            high = self.below.resolve(sorted_D) if self.below else None
            for file in self.outputs or self.files:
                scored = self._again(file, *known[file]) if known else self._score(file, counts, bar)
                if file in self.outputs:
                    written.append(self._write(file, scored, low, high))
                else:
                    collections.deque(scored, maxlen=0)
        bounds = {'at least': low if self.above else None, 'below': high}
        return {**counts, 'bounds': {k: v for k, v in bounds.items() if v is not None}, 'files': written}

    def _score(self, file: pathlib.Path, counts: collections.Counter[str], bar: tqdm.tqdm) -> Scored:
        """Yields the batches of a file with the perplexities of their documents. Adds the counts to `counts`."""
        position = 0
        for batch in documents.read(file, self.layout):
            perplexities_D, counted = self.scorer.score(batch.texts)
            counts.update(counted)
            has_words_D = ~np.isnan(perplexities_D)
            self.found.add(perplexities_D[has_words_D], [*itertools.compress(batch.texts, has_words_D)])
            yield batch, perplexities_D
            bar.update(batch.position - position)
            position = batch.position

    def _again(self, file: pathlib.Path, before: tuple[int, ...], known: Sequence[np.ndarray]) -> Scored:
        """Reads a file again. Yields its batches with the perplexities that were computed in the first reading."""
        if facts(file) != before:
            raise BadInput(file, 'has changed since it was scored')
        yield from zip(documents.read(file, self.layout), known, strict=True)

    def _write(self, file: pathlib.Path, scored: Scored, low: float, high: float | None) -> dict[str, Any]:
        """Writes the documents of a file with a perplexity of at least `low`, and below `high` unless it is None."""
        kept = total = 0
        with documents.write(self.outputs[file], self.layout) as write:
            for batch, perplexities_D in scored:
                is_kept_D = perplexities_D >= low  # False for NaN
                if high is not None:
                    is_kept_D &= perplexities_D < high
                write(batch, is_kept_D, perplexities_D)
                kept += int(is_kept_D.sum())
                total += int((~np.isnan(perplexities_D)).sum())
        return {'file': str(file), 'output': str(self.outputs[file]), 'documents': total, 'kept': kept}
