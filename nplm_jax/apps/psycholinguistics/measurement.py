"""Measures the surprisal, entropy and rank of words in an experiment, with models that share a vocabulary.

The log-probability of a word with several tokens is the sum over its tokens, by the chain rule.

Dims: T tokens in all items, W words, C counted tokens, H head tokens, V vocabulary.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics import tables, token_table
from nplm_jax.apps.psycholinguistics.next_word_statistics import LineStatistics, next_word_statistics
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli, strip_punctuation
from nplm_jax.apps.psycholinguistics.token_table import TokenTable
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.frequencies import log_frequencies
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import normalize
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models.mixture import ContextBins, Mixture, normalize_weights
from nplm_jax.models.open_vocabulary import OpenVocabulary
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.runs import remote_scoring
from nplm_jax.utils.errors import require
from nplm_jax.utils.names import require_one_of

CHOICES = {
    'punctuation': ('attached', 'word'),
    'tokens': ('words', 'whitespace'),
    'hyphens': ('keep', 'split'),
    'word_probability': ('corrected', 'sum'),
}
WORD_COLUMNS = ('tokens', 'num_tokens', 'length', 'log_frequency', 'in_vocabulary', 'scored_as', 'starts_after')
MIXTURE = 'mixture'  # name of the model that `add_mixture` adds
MODEL_COLUMNS = ('surprisal', 'entropy', 'entropy_reduction', 'rank')


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `measure`.

    Attributes:
        punctuation: `attached` includes the punctuation of a word in its surprisal. `word` excludes the punctuation,
            which still serves as context.
        context: The unscored text before each item. None selects the context that `nplm score` uses, which is <p> if
            the models' corpus has paragraph marks. See `LineStart`.
        tokens: How to tokenize words: `words`, `whitespace`, or '' to tokenize as in the models' corpus. See
            `words.reading`.
        hyphens: `split` splits an out-of-vocabulary word at its hyphens if all parts are in the vocabulary. `keep` does
            not split words.
        spillover: The number of preceding words whose values are added to each row.
        word_probability: The probability to use if the tokens are subwords, characters or bytes: `corrected` for
            P(word), or `sum` for P(tokens). See `token_table.correct`.
    """

    punctuation: str = 'attached'
    context: str | None = None
    tokens: str = ''
    hyphens: str = 'keep'
    spillover: int = 0
    word_probability: str = 'corrected'

    def __post_init__(self) -> None:
        """Raises BadInput if an option has an invalid value."""
        for key, values in CHOICES.items():
            if getattr(self, key) != getattr(Options, key):
                require_one_of(key, getattr(self, key), values)
        is_count = isinstance(self.spillover, int) and self.spillover >= 0
        require(is_count, 'spillover', self.spillover, 'must be a non-negative integer')


def add_mixture(models: Mapping[str, LoadedModel], weights: Sequence[float]) -> dict[str, LoadedModel]:
    """Returns the models together with their mixture, named `mixture`.

    Args:
        models: Two or more models with the same vocabulary, by name.
        weights: The weight of each model. The weights must sum to one.

    Raises:
        BadInput: The vocabularies differ, or the weights are invalid.
    """
    require(len(models) > 1, 'weights', list(weights), 'requires two or more models')
    require(MIXTURE not in models, 'model', MIXTURE, 'is reserved for the mixture; choose another name')
    require(len(weights) == len(models), 'weights', list(weights), f'must contain one number per model ({len(models)})')
    vocabulary, first = _check_models(models), next(iter(models.values()))
    weights_1xM = normalize_weights('weights', list(weights), weights)
    mixture = Mixture([loaded.model for loaded in models.values()], weights_1xM, ContextBins())
    return {**models, MIXTURE: LoadedModel(first.settings, vocabulary, mixture)}


def measure(
    models: Mapping[str, LoadedModel],
    stimuli: Stimuli,
    options: Options = Options(),
    spelling: Spelling | None = None,
    log_frequency_W: np.ndarray | None = None,
) -> dict[str, list[Any]]:
    """Measures the surprisal, entropy and rank of stimuli with one or more models.

    Args:
        models: One or more models with the same vocabulary, by name.
        stimuli: The words.
        options: The measurement options.
        spelling: The spelling model for out-of-vocabulary words. If None, these words are scored as <rare>.
        log_frequency_W: The log frequencies of the words. None computes them from the counts of the vocabulary.

    Returns:
        The additional columns by name, with one value per word. Missing numbers are NaN.

    Raises:
        BadInput: The vocabularies or tokenizers of the models differ, a word has no tokens, or the stimuli already have
            a column with the same name as an additional column.
        NonFiniteError: A log-probability is not a number.
    """
    vocabulary = _check_models(models)
    tables.check_new(stimuli.columns, _added_columns(models, options))
    table, lines, contexts = cut_items(vocabulary, stimuli, options)
    prefixes = list(map(vocabulary.encode, contexts))
    log_spellings_T, is_spelled_T = np.zeros(len(table.tokens_T)), np.zeros(len(table.tokens_T), bool)
    if spelling is not None:
        model = next(iter(models.values())).model  # any model will do, because spellings do not depend on it
        reader = OpenVocabulary(model, vocabulary, spelling)
        log_spellings_T, is_spelled_T = reader.log_spellings(table.tokens_T), reader.is_spelled(table.tokens_T)
    columns = _describe_words(stimuli, table, vocabulary, options, is_spelled_T)
    if log_frequency_W is not None:
        columns['log_frequency'] = log_frequency_W.tolist()
    starts = [' '.join(vocabulary.show(context)) for context in contexts]
    columns['starts_after'] = [start for start, rows in zip(starts, stimuli.items) for _ in rows]
    is_sum = not vocabulary.tokenizer.is_lossless or options.word_probability == 'sum'
    groups = [] if is_sum else token_table.find_groups(vocabulary, options.punctuation)
    keys = [(prefix.tobytes(), line.tobytes()) for prefix, line in zip(prefixes, lines)]
    texts = dict(zip(keys, zip(lines, prefixes)))  # an item that several readers read is measured only once
    read = functools.partial(next_word_statistics, vocabulary_size=len(vocabulary), groups=groups)
    for name, loaded in models.items():
        found = dict(zip(texts, remote_scoring.map_lines(loaded.model, read, *map(list, zip(*texts.values())))))
        statistics = [LineStatistics(*found[key]) for key in keys]
        measured = _measure_words(statistics, table, log_spellings_T, groups)
        columns |= {f'{key}_{name}': values_W.tolist() for key, values_W in zip(MODEL_COLUMNS, measured)}
    for key, distance in _spillover(models, options):
        columns[f'{key}_prev{distance}'] = stimuli_lib.shift(columns[key], stimuli.item_W, distance).tolist()
    return columns


def to_long(columns: tables.Columns, models: Sequence[str], spillover: int) -> dict[str, list[Any]]:
    """Converts a table with one row per word to long format: one row per word and model, ordered by model.

    Args:
        columns: The columns of the table and the columns from `measure`.
        models: The names of the models, which become the values of the column `model`.
        spillover: See `Options`.
    """
    parts = model_columns(spillover)
    named = {f'{key}_{name}{end}' for key, end in parts for name in models}
    long = {key: [*cells] * len(models) for key, cells in columns.items() if key not in named}
    long['model'] = [name for name in models for _ in columns['tokens']]
    for key, end in parts:
        long[key + end] = [cell for name in models for cell in columns[f'{key}_{name}{end}']]
    return long


def model_columns(spillover: int) -> list[tuple[str, str]]:
    """Returns, for each column of a model, the parts of the column name before and after the name of the model."""
    return [(key, '') for key in MODEL_COLUMNS] + [('surprisal', f'_prev{d}') for d in range(1, spillover + 1)]


def _added_columns(models: Iterable[str], options: Options) -> list[str]:
    """Returns the names of the columns from `measure`."""
    of_models = [f'{key}_{name}' for name in models for key in MODEL_COLUMNS]
    before = [f'{key}_prev{distance}' for key, distance in _spillover(models, options)]
    return [*WORD_COLUMNS, *of_models, *before]


def _spillover(models: Iterable[str], options: Options) -> list[tuple[str, int]]:
    """Returns the base column and the distance, in words, of each column that contains values of preceding words."""
    repeated = ['length', 'log_frequency', *(f'surprisal_{name}' for name in models)]
    return [(key, distance) for distance in range(1, options.spillover + 1) for key in repeated]


def _check_models(models: Mapping[str, LoadedModel]) -> Vocabulary:
    """Returns the vocabulary that the models share. Raises BadInput if their vocabularies differ."""
    require(len(models) > 0, 'model', dict(models), 'must contain at least one model')
    vocabularies = {name: loaded.vocabulary for name, loaded in models.items()}
    first, vocabulary = next(iter(vocabularies.items()))
    for name, other in vocabularies.items():
        difference = other.difference(vocabulary, repr(first))
        require(not difference, 'model', name, f'{difference}; measure the models separately')
    return vocabulary


def cut_items(
    vocabulary: Vocabulary, stimuli: Stimuli, options: Options
) -> tuple[TokenTable, list[np.ndarray], list[list[str]]]:
    """Tokenizes stimuli and their contexts.

    Args:
        vocabulary: The vocabulary of the models.
        stimuli: The words.
        options: The measurement options.

    Returns:
        The table of the tokens in all items, the token ids of each item, and the context tokens of each item.

    Raises:
        BadInput: A word has no tokens, or an option is not supported for models with this vocabulary.
    """
    tokenizer = reading(vocabulary.tokenizer, options.tokens, options.hyphens)
    is_lossless = vocabulary.tokenizer.is_lossless
    is_default = options.word_probability == Options.word_probability
    allowed = f'does not apply to models with corpus.tokens={vocabulary.tokenizer.kind}'
    require(is_default or is_lossless, 'word_probability', options.word_probability, allowed)
    is_cut_by_word = is_lossless or tokenizer.tokens is None
    allowed = 'tokenizes whole lines, so its tokens cannot be assigned to words'
    require(is_cut_by_word, 'corpus.tokens', tokenizer.kind, allowed)
    (text,) = unspaced_scripts.join(vocabulary, [(options.context or '').rstrip(' ')])
    before = '' if not text.strip() or text[-1] in '\r\n' else text
    table = TokenTable.of(tokenizer, vocabulary, stimuli, options.punctuation, before)
    lines = [table.ids_T[line] for line in table.lines]
    if options.context is None:
        start = LineStart.of(vocabulary)
        return table, lines, [vocabulary.decode(start.before(line)) for line in lines]
    if is_lossless:
        return table, lines, cutting.tokenize(tokenizer, [text]) * len(lines)
    words = stimuli_lib.from_text(text, 'context') if text.strip() else None
    context = TokenTable.of(tokenizer, vocabulary, words).tokens_T if words else []
    return table, lines, [context] * len(lines)


def _describe_words(
    stimuli: Stimuli, table: TokenTable, vocabulary: Vocabulary, options: Options, is_spelled_T: np.ndarray
) -> dict[str, list[Any]]:
    """Returns the columns that do not depend on the models."""
    sizes_W = np.bincount(table.words_T)
    tokens = np.split(np.array(table.tokens_T, object), np.cumsum(sizes_W)[:-1])
    log_f_V = log_frequencies(vocabulary.counts)
    unseen = log_f_V[RARE_ID] + math.log(0.5 / (vocabulary.counts[RARE_ID] + 0.5))
    is_rare_T = table.ids_T == RARE_ID
    log_f_T = np.where(is_rare_T, unseen, log_f_V[table.ids_T])
    is_known_W, has_spelling_W = (
        _sum_by_word(mask_T, table.words_T, table.counted_T) == 0 for mask_T in (is_rare_T, is_rare_T & ~is_spelled_T)
    )
    is_lossless = vocabulary.tokenizer.is_lossless  # the vocabulary of such a tokenizer has no word counts
    has_counts = not is_lossless and any(vocabulary.counts)  # ARPA files have no counts
    scored = options.word_probability if is_lossless else 'word'
    is_attached = options.punctuation == 'attached'
    log_f_W = _sum_by_word(log_f_T, table.words_T, table.is_head_T)
    return {
        'tokens': [' '.join(vocabulary.show(word_tokens)) for word_tokens in tokens],
        'num_tokens': sizes_W.tolist(),
        'length': [len(normalize(word.strip() if is_attached else strip_punctuation(word))) for word in stimuli.words],
        'log_frequency': (log_f_W if has_counts else np.full(len(sizes_W), math.nan)).tolist(),
        'in_vocabulary': is_known_W.tolist(),
        'scored_as': np.where(is_known_W, scored, np.where(has_spelling_W, 'spelled', RARE)).tolist(),
    }


def _sum_by_word(values_T: np.ndarray, words_T: np.ndarray, mask_T: np.ndarray) -> np.ndarray:
    return np.bincount(words_T[mask_T], values_T[mask_T])


def _measure_words(
    statistics: Sequence[LineStatistics], table: TokenTable, log_spellings_T: np.ndarray, groups: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Computes the values of MODEL_COLUMNS from the statistics of each item."""
    log_p_T, rank_T, before_T, after_T = (np.concatenate(parts) for parts in zip(*(line[:4] for line in statistics)))
    counted_C, heads_H = np.flatnonzero(table.counted_T), np.flatnonzero(table.is_head_T)
    is_first_C = np.diff(table.words_T[counted_C], prepend=-1) != 0
    first_W, last_W = counted_C[is_first_C], counted_C[np.append(is_first_C[1:], True)]
    head_W = heads_H[np.diff(table.words_T[heads_H], prepend=-1) != 0]
    log_p_W = _sum_by_word(log_p_T + log_spellings_T, table.words_T, table.counted_T)
    if groups:
        begins_word_W = np.diff(table.words_T, prepend=-1)[first_W] != 0
        is_space_W = np.isin(table.ids_T[first_W], groups[0])
        start_W = np.where(is_space_W, 0, np.where(begins_word_W, 1, 3))
        corrections_W = token_table.correct(statistics, first_W, last_W, start_W, table)
        log_p_W = np.where(np.isneginf(log_p_W), log_p_W, log_p_W + corrections_W)
    before_W, after_W = before_T[first_W], after_T[last_W]
    return (*(nats_W / math.log(2) for nats_W in (-log_p_W, before_W, before_W - after_W)), rank_T[head_W])
