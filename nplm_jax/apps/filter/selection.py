"""Documents scored by a model, and those within bounds written. Dims: D documents of a batch."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tqdm

from nplm_jax.apps.filter import documents
from nplm_jax.apps.filter.distribution import Distribution, quantile
from nplm_jax.apps.filter.documents import Batch, Layout
from nplm_jax.data import sources
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.inference import scoring
from nplm_jax.ngram.quantization import compact
from nplm_jax.reporting import catalog, packed
from nplm_jax.runs.command_models import LoadedModels, load_models
from nplm_jax.runs.imported import read_arpa
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.progress import progress_bar

Scored = Iterator[tuple[Batch, np.ndarray]]
"""Batches with the perplexity of each document; NaN for one without words."""


class Bound(NamedTuple):
    """A perplexity, or a share of the documents."""

    value: float
    is_share: bool

    def resolve(self, sorted_D: np.ndarray) -> float:
        """Returns the perplexity, of a share that of these documents."""
        return quantile(sorted_D, self.value) if self.is_share else self.value


@dataclasses.dataclass(frozen=True)
class Scorer:
    """A model that scores documents as `nplm score` does.

    Attributes:
        models: The model.
        tokens: How text is split; see `words.reading`.
        end: The words that end a line: `<p>`, or none.
    """

    models: LoadedModels
    tokens: str = ''
    end: Sequence[str] = ()

    @classmethod
    def load(cls, name: str, tokens: str = '', end: bool = False) -> Self:
        """Loads a run, a packed model, or an ARPA file as `nplm import` reads it.

        Args:
            name: The path.
            tokens: See `Scorer`.
            end: Whether the end of each line is scored.

        Raises:
            BadInput: There is no such model, or it has no mark that ends lines.
        """
        path = expand('RUN', name)
        if path.is_file() and not packed.is_packed(path):
            settings, vocabulary, model = read_arpa(path)
            start, model = scoring.LineStart.of(vocabulary), compact(model)
            models = LoadedModels([path.stem], [settings], vocabulary, [model], model, start)
        else:
            found = path.is_file() or catalog.is_finished(catalog.expand_run(name))
            require(found, 'RUN', name, 'must be a finished run, a packed model or an ARPA file')
            models = load_models([name])
        mark = models.vocabulary.decode(models.line_start.prefix) if end else []
        require(bool(mark) or not end, '--end', True, 'the model has no paragraph marks, which end lines')
        reading(models.vocabulary.tokenizer, tokens)  # refuses --tokens before a file is read
        return cls(models, tokens, mark)

    def score(self, texts: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
        """Scores documents, each line of them alone.

        Args:
            texts: The texts of the documents.

        Returns:
            The perplexity of each document (float64): NaN for one without words, infinite for one without a known word.
            And the numbers of documents with words (`documents`), without words (`empty`) and without a known word
            (`unknown`), of words (`words`), and of words outside the vocabulary (`oovs`).
        """
        lines = [text.removesuffix('\n').split('\n') for text in texts]
        words = self.models.tokenize_lines([*itertools.chain.from_iterable(lines)], self.tokens)
        stops = np.cumsum([0, *map(len, lines)]).tolist()
        spans = [slice(start, stop) for start, stop in itertools.pairwise(stops)]
        has_words_D = np.array([any(words[span]) for span in spans], bool)
        ids = [self.models.vocabulary.encode([*line, *self.end]) for line in words]
        scored = scoring.score(self.models.mixture, ids, self.models.line_start)
        totals = [scoring.total(scored[span]) for span in itertools.compress(spans, has_words_D)]
        known = [any(word in self.models.vocabulary.ids for line in words[span] for word in line) for span in spans]
        is_known = [*itertools.compress(known, has_words_D)]
        perplexities_D = np.full(len(texts), math.nan)
        perplexities_D[has_words_D] = [t.perplexity if known else math.inf for t, known in zip(totals, is_known)]
        return perplexities_D, {
            'documents': len(totals),
            'empty': len(texts) - len(totals),
            'unknown': is_known.count(False),
            'words': sum(total.tokens for total in totals),
            'oovs': sum(total.oovs for total in totals),
        }


class Job(NamedTuple):
    """What is scored and written: files, for some, all or none of them the file to write, their layout, the scorer."""

    files: Sequence[pathlib.Path]
    outputs: Mapping[pathlib.Path, pathlib.Path]
    layout: Layout
    scorer: Scorer


def measure(job: Job) -> tuple[dict[str, Any], Distribution]:
    """Returns the distribution of the perplexities, as results too; writes all documents with words to the outputs."""
    found, counts = Distribution(), collections.Counter[str]()

    def watched(file: pathlib.Path) -> Scored:
        for batch, perplexities_D in _score(file, job, counts, bar):
            has_words_D = ~np.isnan(perplexities_D)
            found.add(perplexities_D[has_words_D], [*itertools.compress(batch.texts, has_words_D)])
            yield batch, perplexities_D

    with _bar(job.files) as bar:
        if job.outputs:
            written = [_write(*pair, job.layout, watched(pair[0]), 0, None) for pair in job.outputs.items()]
        else:
            collections.deque(itertools.chain.from_iterable(map(watched, job.files)), maxlen=0)
    results = {**counts, **(found.results() if counts['documents'] else {})}
    return results | ({'files': written} if job.outputs else {}), found


def select(job: Job, above: Bound | None, below: Bound | None) -> dict[str, Any]:
    """Writes the documents of at least one perplexity and below the other; returns what was written.

    Raises:
        BadInput: A file is damaged, or changes while it is read.
    """
    counts, known = collections.Counter[str](), {}
    sorted_D = np.zeros(0)
    with _bar(job.files) as bar:
        if any(bound and bound.is_share for bound in (above, below)):
            known = {file: [scores_D for _, scores_D in _score(file, job, counts, bar)] for file in job.files}
            sorted_D = np.sort(np.concatenate([sorted_D, *itertools.chain.from_iterable(known.values())]))
            sorted_D = sorted_D[~np.isnan(sorted_D)]
        low = above.resolve(sorted_D) if above else 0.0
        high = below.resolve(sorted_D) if below else None
        written = []
        for file, output in job.outputs.items():
            scored = _again(file, job.layout, known[file]) if known else _score(file, job, counts, bar)
            written.append(_write(file, output, job.layout, scored, low, high))
    bounds = {name: value for name, value, bound in (('at least', low, above), ('below', high, below)) if bound}
    return {**counts, 'bounds': bounds, 'files': written}


def _bar(files: Sequence[pathlib.Path]) -> tqdm.tqdm:
    return progress_bar(sum(map(sources.size, files)), 'scoring', ' bytes')


def _score(file: pathlib.Path, job: Job, counts: collections.Counter[str], bar: tqdm.tqdm) -> Scored:
    """Yields the batches of a file with the perplexities of their documents; adds to the counts."""
    position = 0
    counts.update(documents=0, empty=0, unknown=0, words=0, oovs=0)
    for batch in documents.read(file, job.layout):
        perplexities_D, counted = job.scorer.score(batch.texts)
        counts.update(counted)
        yield batch, perplexities_D
        bar.update(batch.position - position)
        position = batch.position


def _again(file: pathlib.Path, layout: Layout, known: Sequence[np.ndarray]) -> Scored:
    """Yields the batches of a file again, with the perplexities that their documents had."""
    for batch, perplexities_D in itertools.zip_longest(documents.read(file, layout), known):
        if batch is None or perplexities_D is None or len(batch.texts) != len(perplexities_D):
            raise BadInput(file, 'has changed since it was scored')
        yield batch, perplexities_D


def _write(
    file: pathlib.Path, output: pathlib.Path, layout: Layout, scored: Scored, low: float, high: float | None
) -> dict[str, Any]:
    """Writes the documents of a file with a perplexity of at least `low`, and below `high` unless it is None."""
    kept = total = 0
    with documents.write(output, layout) as write:
        for batch, perplexities_D in scored:
            is_kept_D = perplexities_D >= low  # not NaN
            if high is not None:
                is_kept_D &= perplexities_D < high
            write(batch, is_kept_D, perplexities_D)
            kept += int(is_kept_D.sum())
            total += int((~np.isnan(perplexities_D)).sum())
    return {'file': str(file), 'output': str(output), 'documents': total, 'kept': kept}
