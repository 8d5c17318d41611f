"""Surprisal of the words of a pandas or Polars frame, or of a list.

`nplm_jax.surprisal` is the function of this module.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.measurement import Options, add_mixture, measure
from nplm_jax.apps.psycholinguistics.stimuli import ColumnNames, Stimuli
from nplm_jax.apps.psycholinguistics.tables import Columns, is_missing
from nplm_jax.data import text_checks
from nplm_jax.inference.loaded_model import LoadedModel, check_loaded
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.utils.errors import require


def surprisal(
    model: LoadedModel | Mapping[str, LoadedModel],
    frame: Any,
    *,
    item: str | Sequence[str] = 'item',
    zone: str = 'zone',
    word: str = 'word',
    sentence: str = '',
    weights: Sequence[float] | None = None,
    punctuation: str = 'attached',
    context: str | None = None,
    tokens: str = '',
    hyphens: str = 'keep',
    spillover: int = 0,
    word_probability: str = 'corrected',
    spelling: Spelling | None = None,
) -> Any:
    """Adds surprisal, entropy and other columns to the words of an experiment; docs/reference/surprisal.md has all.

    Args:
        model: What `nplm_jax.load` returns, whose columns have the name of its folder, as those of `nplm surprisal`; or
            several of these by the names that the columns are to have. They must have one vocabulary.
        frame: A pandas or a Polars frame with one row a word, the rows of an item together and in the order of their
            zones; or a list of words, which are one item.
        item: The column of items, texts that do not depend on one another; or the columns that together identify them.
        zone: The column of the places of the words in their item.
        word: The column of words, with their punctuation.
        sentence: The column of sentences of a frame with one row an item. The result has one row a word, in more
            columns named as `zone` and `word` say.
        weights: The weights of several models in their mixture, one a model, which is measured too, as `mixture`.
        punctuation: See `Options`, as for the five that follow.
        context: The words before each item.
        tokens: How a word is cut.
        hyphens: Whether unknown words are cut at hyphens.
        spillover: How many words before each have columns.
        word_probability: Of models of pieces, characters or bytes: `corrected` or `sum`.
        spelling: What `nplm_jax.spelling.load` returns, to spell the words outside the vocabulary; by default they are
            scored as the one word <rare>.

    Returns:
        A frame of the same kind, with more columns; of a list a list of dicts, one a word.

    Raises:
        BadInput: The model is no loaded model, or the frame is not as described; the message names row and column.
    """
    if isinstance(model, Mapping):
        models = dict(model)
        for name, loaded in models.items():
            check_loaded(f'model[{name!r}]', loaded)
    else:
        check_loaded('model', model)
        models = {model.name or model.settings.name: model}
    models = models if weights is None else add_mixture(models, weights)
    options = Options(punctuation, context, tokens, hyphens, spillover, word_probability)
    names = ColumnNames((item,) if isinstance(item, str) else tuple(item), zone, word)

    def measure_columns(columns: Columns) -> tuple[dict[str, Sequence[Any]], Sequence[int]]:
        """Returns the columns that are added to those of a frame, and for each of their rows the row of the frame."""
        rows: Sequence[int] = range(len(frame))
        if sentence:
            stimuli, rows = stimuli_lib.from_sentences(columns, sentence, 'the frame', names)
        else:
            stimuli = stimuli_lib.from_columns(columns, 'the frame', names, sentence_flag='sentence=')
        new = {key: cells for key, cells in stimuli.columns.items() if key not in columns}
        return new | measure_words(stimuli), rows

    def measure_words(stimuli: Stimuli) -> dict[str, list[Any]]:
        """Returns the columns that are added to the words."""
        measured = measure(models, stimuli, options, spelling)
        share = 1 - sum(measured['in_vocabulary']) / len(stimuli.words)
        loaded = next(iter(models.values()))
        warning = text_checks.describe_oov(share, 'words', loaded.settings.corpus, len(loaded.vocabulary))
        if spelling is None and warning:
            warnings.warn(warning.removeprefix('warning: '), stacklevel=3)
        return measured

    pandas, polars = sys.modules.get('pandas'), sys.modules.get('polars')  # whose frame it is has been imported
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        require(frame.columns.is_unique, 'frame', list(frame.columns), 'has two columns of one name')
        cells = {c: frame[c].astype(object).where(frame[c].notna(), None).tolist() for c in frame}
        added, rows = measure_columns(cells)
        frame = frame.iloc[rows].reset_index(drop=True) if sentence else frame
        return pandas.concat([frame, pandas.DataFrame(added, index=frame.index)], axis=1)
    if polars is not None and isinstance(frame, polars.DataFrame):
        added, rows = measure_columns({c: frame[c].to_list() for c in frame.columns})
        frame = frame[rows] if sentence else frame
        return frame.with_columns(polars.Series(name, _with_none(column)) for name, column in added.items())
    is_list = isinstance(frame, (list, tuple))
    allowed = 'must be a pandas or a Polars frame, or a list of words; split a string into words first'
    require(is_list, 'frame', type(frame).__name__, allowed)
    columns = {'item': [1] * len(frame), 'zone': list(range(1, len(frame) + 1)), 'word': list(frame)}
    columns |= measure_words(stimuli_lib.from_columns(columns, 'the list'))
    return [dict(zip(columns, cells)) for cells in zip(*map(_with_none, columns.values()))]


def _with_none(column: Sequence[Any]) -> list[Any]:
    """Returns a column with None in place of nan."""
    return [None if is_missing(cell) else cell for cell in column]
