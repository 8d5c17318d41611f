"""Surprisal, entropy and rank of the words of an experiment, by one or several models of one vocabulary.

A word may be cut into several tokens. Their log-probabilities add up to that of the word, by the chain rule.

Dims: T tokens of all items, W words.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics import tables, word_probability
from nplm_jax.apps.psycholinguistics.next_word_statistics import LineStatistics, next_word_statistics
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli, strip_punctuation
from nplm_jax.apps.psycholinguistics.token_table import TokenTable
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.frequencies import log_frequencies
from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.inference.scoring import LineStart
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
MIXTURE = 'mixture'  # its name
MODEL_COLUMNS = ('surprisal', 'entropy', 'entropy_reduction', 'rank')


@dataclasses.dataclass(frozen=True)
class Options:
    """How words are measured.

    Attributes:
        punctuation: `attached` counts the punctuation tokens of a word in its surprisal; `word` leaves them out, and
            reads them as context all the same.
        context: The text before each item, which is read and not scored. By default it is
            that of every text that is scored: <p> if the corpus of the models has this mark, see `LineStart`.
        tokens: How a word is cut, see `words.reading`.
        hyphens: `split` cuts a word outside the vocabulary at its hyphens if the vocabulary has all parts.
        spillover: The number of words before each word whose columns are repeated beside it.
        word_probability: Of models of pieces, characters or bytes: `corrected` for P(word), `sum` for that of its
            tokens alone, see `word_probability.correct`.
    """

    punctuation: str = 'attached'
    context: str | None = None
    tokens: str = ''
    hyphens: str = 'keep'
    spillover: int = 0
    word_probability: str = 'corrected'

    def __post_init__(self) -> None:
        """Raises BadInput for a value that is not allowed."""
        for key, values in CHOICES.items():
            if getattr(self, key) != getattr(Options, key):
                require_one_of(key, getattr(self, key), values)
        is_count = isinstance(self.spillover, int) and self.spillover >= 0
        require(is_count, 'spillover', self.spillover, 'must be 0 or a larger whole number')


def add_mixture(models: Mapping[str, LoadedModel], weights: Sequence[float]) -> dict[str, LoadedModel]:
    """Returns the models, and their mixture under the name `mixture`.

    Args:
        models: Two models or more by name; they must have one vocabulary.
        weights: The weight of each model; they sum to one.

    Raises:
        BadInput: The models or the weights are not as described.
    """
    require(len(models) > 1, 'weights', list(weights), 'belong to two models or more')
    require(MIXTURE not in models, 'model', MIXTURE, 'is the name of the mixture; give another')
    require(len(weights) == len(models), 'weights', list(weights), f'must be {len(models)} numbers, one a model')
    vocabulary, first = _check_models(models), next(iter(models.values()))
    weights_1xM = normalize_weights('weights', list(weights), weights)
    mixture = Mixture([loaded.model for loaded in models.values()], weights_1xM, ContextBins())
    return {**models, MIXTURE: LoadedModel(first.settings, vocabulary, mixture)}


def measure(
    models: Mapping[str, LoadedModel], stimuli: Stimuli, options: Options = Options(), spelling: Spelling | None = None
) -> dict[str, list[Any]]:
    """Returns the columns that models add to stimuli; a missing number is nan.

    Args:
        models: The models by name; they must have one vocabulary.
        stimuli: The words.
        options: How they are measured.
        spelling: The spelling of the words outside the vocabulary; without it they are scored as <rare>.

    Raises:
        BadInput: The models differ in their vocabularies or tokenizers; a word has no token; or the stimuli have a
            column of a name that is added.
        NonFiniteError: A log-probability is not a number.
    """
    vocabulary = _check_models(models)
    tables.check_new(stimuli.columns, _added_columns(models, options))
    table, lines, contexts = cut_items(vocabulary, stimuli, options)
    prefixes = list(map(vocabulary.encode, contexts))
    columns = _describe_words(stimuli, table, vocabulary, options, spelling is not None)
    starts = [' '.join(vocabulary.show(context)) for context in contexts]
    columns['starts_after'] = [start for start, rows in zip(starts, stimuli.items) for _ in rows]
    is_sum = not vocabulary.tokenizer.is_lossless or options.word_probability == 'sum'
    groups = [] if is_sum else word_probability.find_groups(vocabulary, options.punctuation)
    log_spellings_T: np.ndarray | None = None
    keys = [(prefix.tobytes(), line.tobytes()) for prefix, line in zip(prefixes, lines)]
    texts = dict(zip(keys, zip(lines, prefixes)))  # an item that several readers read is measured once
    read = functools.partial(next_word_statistics, vocabulary_size=len(vocabulary), groups=groups)
    for name, model in ((name, loaded.model) for name, loaded in models.items()):
        found = dict(zip(texts, remote_scoring.map_lines(model, read, *map(list, zip(*texts.values())))))
        statistics = [LineStatistics(*found[key]) for key in keys]
        if spelling is not None and log_spellings_T is None:
            log_spellings_T = OpenVocabulary(model, vocabulary, spelling).log_spellings(table.tokens_T)
        columns |= _measure_words(name, statistics, table, log_spellings_T, groups)
    for key, distance in _spillover(models, options):
        columns[f'{key}_prev{distance}'] = stimuli_lib.shift(columns[key], stimuli.item_W, distance).tolist()
    return columns


def to_long(columns: tables.Columns, models: Sequence[str], spillover: int) -> dict[str, list[Any]]:
    """Returns a table with one row a word as one with one row per word and model, model by model.

    Args:
        columns: The columns, with those that `measure` adds.
        models: The names of the models, which move from the names of the columns to the cells of a column `model`.
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
    """Returns the columns of a model, each as what stands before and what after its name."""
    return [(key, '') for key in MODEL_COLUMNS] + [('surprisal', f'_prev{d}') for d in range(1, spillover + 1)]


def _added_columns(models: Iterable[str], options: Options) -> list[str]:
    """Returns the names of the columns that `measure` adds."""
    of_models = [f'{key}_{name}' for name in models for key in MODEL_COLUMNS]
    before = [f'{key}_prev{distance}' for key, distance in _spillover(models, options)]
    return [*WORD_COLUMNS, *of_models, *before]


def _spillover(models: Iterable[str], options: Options) -> list[tuple[str, int]]:
    """Returns the columns that are repeated, and from how many words before."""
    repeated = ['length', 'log_frequency', *(f'surprisal_{name}' for name in models)]
    return [(key, distance) for distance in range(1, options.spillover + 1) for key in repeated]


def _check_models(models: Mapping[str, LoadedModel]) -> Vocabulary:
    """Returns the vocabulary of all models."""
    require(len(models) > 0, 'model', dict(models), 'give one or more')
    vocabularies = {name: loaded.vocabulary for name, loaded in models.items()}
    first, vocabulary = next(iter(vocabularies.items()))
    for name, other in vocabularies.items():
        difference = other.difference(vocabulary, repr(first))
        require(not difference, 'model', name, f'{difference}; measure them one after the other')
    return vocabulary


def cut_items(
    vocabulary: Vocabulary, stimuli: Stimuli, options: Options
) -> tuple[TokenTable, list[np.ndarray], list[list[str]]]:
    """Returns the tokens of all items, the ids of each item, and the tokens before each item.

    Raises:
        BadInput: A word has no token, or an option does not apply to the models of this vocabulary.
    """
    tokenizer = reading(vocabulary.tokenizer, options.tokens, options.hyphens)
    is_lossless = vocabulary.tokenizer.is_lossless
    is_default = options.word_probability == Options.word_probability
    allowed = f'does not apply to a model of corpus.tokens={vocabulary.tokenizer.kind}'
    require(is_default or is_lossless, 'word_probability', options.word_probability, allowed)
    is_cut_by_word = is_lossless or tokenizer.tokens is None
    require(is_cut_by_word, 'corpus.tokens', tokenizer.kind, 'cuts whole lines: its tokens cannot be assigned to words')
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
    stimuli: Stimuli, table: TokenTable, vocabulary: Vocabulary, options: Options, is_spelled: bool
) -> dict[str, list[Any]]:
    """Returns the columns that no model is needed for."""
    num_words, words_T = len(stimuli.words), table.words_T
    sizes_W = np.bincount(words_T, minlength=num_words)
    tokens = np.split(np.array(table.tokens_T, object), np.cumsum(sizes_W)[:-1])
    log_f_V = log_frequencies(vocabulary.counts)
    unseen = log_f_V[RARE_ID] + math.log(0.5 / (vocabulary.counts[RARE_ID] + 0.5))
    log_f_T = np.where(table.ids_T == RARE_ID, unseen, log_f_V[table.ids_T])
    rare_T = (table.ids_T == RARE_ID) & table.counted_T
    is_known_W = np.bincount(words_T[rare_T], minlength=num_words) == 0
    is_lossless = vocabulary.tokenizer.is_lossless  # then the vocabulary counts no words
    has_counts = not is_lossless and any(vocabulary.counts)  # that of an ARPA file has none
    scored = options.word_probability if is_lossless else 'word'
    is_attached = options.punctuation == 'attached'
    log_f_W = _sum_by_word(log_f_T, words_T, table.is_head_T, num_words)
    return {
        'tokens': [' '.join(vocabulary.show(word_tokens)) for word_tokens in tokens],
        'num_tokens': sizes_W.tolist(),
        'length': [len(word.strip() if is_attached else strip_punctuation(word)) for word in stimuli.words],
        'log_frequency': (log_f_W if has_counts else np.full(num_words, math.nan)).tolist(),
        'in_vocabulary': is_known_W.tolist(),
        'scored_as': [scored if known else 'spelled' if is_spelled else RARE for known in is_known_W.tolist()],
    }


def _sum_by_word(values_T: np.ndarray, words_T: np.ndarray, mask_T: np.ndarray, num_words: int) -> np.ndarray:
    return np.bincount(words_T[mask_T], values_T[mask_T], minlength=num_words)


def _measure_words(
    name: str,
    statistics: Sequence[LineStatistics],
    table: TokenTable,
    log_spellings_T: np.ndarray | None,
    groups: Sequence[np.ndarray],
) -> dict[str, list[Any]]:
    """Returns the columns of a model."""
    log_p_T, rank_T, before_T, after_T = (np.concatenate(parts) for parts in zip(*(line[:4] for line in statistics)))
    counted_C = np.flatnonzero(table.counted_T)
    words_C = table.words_T[counted_C]
    is_first_C = np.diff(words_C, prepend=-1) != 0
    first_W, last_W = counted_C[is_first_C], counted_C[np.append(is_first_C[1:], True)]
    heads_H = np.flatnonzero(table.is_head_T)
    head_W = heads_H[np.diff(table.words_T[heads_H], prepend=-1) != 0]
    log_p_T = log_p_T if log_spellings_T is None else log_p_T + log_spellings_T
    log_p_W = _sum_by_word(log_p_T, table.words_T, table.counted_T, len(first_W))
    if groups:
        begins_word_W = np.diff(table.words_T, prepend=-1)[first_W] != 0
        is_blank_W = np.isin(table.ids_T[first_W], groups[0])
        start_W = np.where(is_blank_W, 0, np.where(begins_word_W, 1, 3))
        corrections_W = word_probability.correct(statistics, first_W, last_W, start_W, table)
        log_p_W = np.where(np.isneginf(log_p_W), log_p_W, log_p_W + corrections_W)
    return {
        f'surprisal_{name}': (-log_p_W / math.log(2)).tolist(),
        f'entropy_{name}': (before_T[first_W] / math.log(2)).tolist(),
        f'entropy_reduction_{name}': ((before_T[first_W] - after_T[last_W]) / math.log(2)).tolist(),
        f'rank_{name}': rank_T[head_W].tolist(),
    }
