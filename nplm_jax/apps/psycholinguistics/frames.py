"""Implements `nplm_jax.surprisal`, which measures the surprisal of the words in a data frame or list."""

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
    """Adds surprisal, entropy and other columns to a table of words.

    docs/reference/surprisal.md defines the columns.

    Args:
        model: A loaded model, or a mapping from names to loaded models with the same vocabulary. The names become part
            of the column names. For a single loaded model, the name of its folder is used, as in `nplm surprisal`.
        frame: A pandas or Polars data frame with one row per word, or a list of words that form one item. The rows of
            an item must be adjacent and ordered by zone.
        item: The column that identifies an item, or several columns that together identify it. Items are scored
            independently.
        zone: The column with the position of each word in its item.
        word: The column that contains the words, including their punctuation.
        sentence: The column that contains the sentences, if the data frame has one row per item. The result then has
            one row per word and the additional columns `zone` and `word`.
        weights: The weight of each model in a mixture, which is added as the model `mixture`. None for no mixture.
        punctuation: Whether the surprisal of a word includes its punctuation (`attached`) or not (`word`). See
            `Options`.
        context: The unscored text before each item. See `Options`.
        tokens: How to tokenize words. See `Options`.
        hyphens: Whether to split out-of-vocabulary words at their hyphens (`split`) or not (`keep`). See `Options`.
        spillover: The number of preceding words whose values are added to each row. See `Options`.
        word_probability: `corrected` for P(word), or `sum` for P(tokens), if the tokens are subwords, characters or
            bytes. See `Options`.
        spelling: The spelling model for out-of-vocabulary words, from `nplm_jax.spelling.load`. If None, these words
            are scored as the token <rare>.

    Returns:
        A data frame of the same type with additional columns. For a list, returns a list with one dictionary per word.

    Raises:
        BadInput: The model is not a loaded model, or the frame is invalid. The message names the row and column.
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
        """Returns the additional columns, and the index of the frame's row from which each of their rows was made."""
        rows: Sequence[int] = range(len(frame))
        if sentence:
            stimuli, rows = stimuli_lib.from_sentences(columns, sentence, 'the frame', names)
        else:
            stimuli = stimuli_lib.from_columns(columns, 'the frame', names, sentence_flag='sentence=')
        new = {key: cells for key, cells in stimuli.columns.items() if key not in columns}
        return new | measure_words(stimuli), rows

    def measure_words(stimuli: Stimuli) -> dict[str, list[Any]]:
        """Returns the additional columns of the words."""
        measured = measure(models, stimuli, options, spelling)
        share = 1 - sum(measured['in_vocabulary']) / len(stimuli.words)
        loaded = next(iter(models.values()))
        warning = text_checks.describe_oov(share, 'words', loaded.settings.corpus, len(loaded.vocabulary))
        if spelling is None and warning:
            warnings.warn(warning.removeprefix('warning: '), stacklevel=3)
        return measured

    # Do not import these packages: if `frame` is a data frame, its package is already imported.
    pandas, polars = sys.modules.get('pandas'), sys.modules.get('polars')
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        require(frame.columns.is_unique, 'frame', list(frame.columns), 'must not have two columns with the same name')
        cells = {c: frame[c].astype(object).where(frame[c].notna(), None).tolist() for c in frame}
        added, rows = measure_columns(cells)
        frame = frame.iloc[rows].reset_index(drop=True) if sentence else frame
        return pandas.concat([frame, pandas.DataFrame(added, index=frame.index)], axis=1)
    if polars is not None and isinstance(frame, polars.DataFrame):
        added, rows = measure_columns({c: frame[c].to_list() for c in frame.columns})
        frame = frame[rows] if sentence else frame
        return frame.with_columns(polars.Series(name, _with_none(column)) for name, column in added.items())
    is_list = isinstance(frame, (list, tuple))
    allowed = 'must be a pandas or Polars data frame, or a list of words; split a string into words first'
    require(is_list, 'frame', type(frame).__name__, allowed)
    require(not sentence, 'sentence', sentence, 'requires a data frame; split the sentences of a list into words')
    columns = {'item': [1] * len(frame), 'zone': list(range(1, len(frame) + 1)), 'word': list(frame)}
    columns |= measure_words(stimuli_lib.from_columns(columns, 'the list'))
    return [dict(zip(columns, cells)) for cells in zip(*map(_with_none, columns.values()))]


def _with_none(column: Sequence[Any]) -> list[Any]:
    """Replaces NaN with None in a column."""
    return [None if is_missing(cell) else cell for cell in column]
