"""Opens ARPA files, runs and loaded models for `kenlm.Model`, and mixes them."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data import unspaced_scripts
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, RARE
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, difference
from nplm_jax.data.tokenizers.words import KENLM_WORD
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.kenlm.mixture_reader import MixtureReader, Reader
from nplm_jax.kenlm.readers import NetworkReader, NgramReader, PaddedReader
from nplm_jax.models.mixture import normalize_weights
from nplm_jax.ngram import arpa, sentence_marks
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.reporting import packed
from nplm_jax.runs import loading
from nplm_jax.utils.errors import require


class OpenedModel(NamedTuple):
    """A model that is ready to score words.

    Attributes:
        reader: The object that computes the probabilities; see `readers`.
        words: The words of the model in id order.
        begin: The id of `<s>`, which is never predicted, or None if the model does not have this word.
        end: The id of the end-of-sentence word, or None if the model has no such word.
        split: A function that splits a sentence into words.
        tokenizer: The tokenizer of a run, or None for an ARPA file, whose words are separated by whitespace.
    """

    reader: Reader
    words: list[str]
    begin: int | None
    end: int | None
    split: Callable[[str], list[str]]
    tokenizer: Tokenizer | None = None


def open_model(path: str, loaded: LoadedModel | None) -> OpenedModel:
    """Opens `loaded` if given, otherwise an ARPA file or any model that `loading.load` accepts."""
    file = pathlib.Path(path)
    if loaded is None and file.is_file() and not packed.is_packed(file):
        return _from_ngrams(*arpa.read(file, as_kenlm=True), KENLM_WORD.findall)
    loaded = loading.load(file) if loaded is None else loaded
    vocabulary, model = loaded.vocabulary, loaded.model
    start, is_lossless, split = LineStart.of(vocabulary), vocabulary.tokenizer.is_lossless, vocabulary.tokenize
    begin = start.prefix
    if not is_lossless:  # subwords can have any spelling
        sentence_marks.check_words(path, vocabulary)
    if isinstance(model, BackoffModel) and begin and not is_lossless:
        part = _from_ngrams(*sentence_marks.split(model, vocabulary), split)
        return part._replace(tokenizer=vocabulary.tokenizer)
    renamed = {} if is_lossless else {PARAGRAPH_BOUNDARY: sentence_marks.END}
    unknown = RARE if arpa.UNKNOWN in vocabulary.ids else arpa.UNKNOWN
    words = [unknown, *(renamed.get(word, word) for word in vocabulary.words[1:])]
    reader = PaddedReader(model, begin) if isinstance(model, BackoffModel) else NetworkReader(model, begin)
    if is_lossless and not unspaced_scripts.has_spaces(vocabulary):
        split = lambda text: vocabulary.tokenize(*unspaced_scripts.join_segmented([text]))  # noqa: E731
    return OpenedModel(reader, words, None, start.end[-1] if start.end else None, split, vocabulary.tokenizer)


def _from_ngrams(model: BackoffModel, vocabulary: Vocabulary, split: Callable[[str], list[str]]) -> OpenedModel:
    """Opens a back-off model with `<s>` and `</s>`."""
    begin, end = map(vocabulary.ids.get, arpa.SENTENCE_MARKS)
    begins, words = () if begin is None else (begin,), [arpa.UNKNOWN, *vocabulary.words[1:]]
    return OpenedModel(NgramReader(model, begins, begins), words, begin, end, split)


def mix(names: Sequence[str], parts: Sequence[OpenedModel], weights: Sequence[float] | None) -> OpenedModel:
    """Mixes models. If any models are runs, the mixture uses their tokenizer. A single model is returned unchanged.

    Raises:
        BadInput: The words or the tokenizers differ, or the weights are invalid.
    """
    shares = [1 / len(parts)] * len(parts) if weights is None else items(weights)
    numbers = int, float, np.integer, np.floating
    are_numbers = len(shares) == len(parts) and all(isinstance(share, numbers) for share in shares)
    require(are_numbers, 'weights', weights, f'must contain one number per model ({len(parts)})')
    (weights_M,) = normalize_weights('weights', weights, shares)
    if len(parts) == 1:
        return parts[0]
    ids = [{word: i for i, word in enumerate(part.words) if i != part.begin} for part in parts]
    words = [*ids[0]]
    for name, ids_of_words in zip(names, ids):
        problem = f'must have the same words as {names[0]} ({len(ids_of_words):,} here, {len(words):,} there); use'
        require(ids_of_words.keys() == ids[0].keys(), 'path', name, f'{problem} `nplm import --vocabulary`')
    cutters = [(name, part.tokenizer, part.split) for name, part in zip(names, parts) if part.tokenizer is not None]
    for name, tokenizer, _ in cutters:
        differs = difference(tokenizer, cutters[0][1], cutters[0][0])
        require(not differs, 'path', name, f'{differs}; mixed models must have the same vocabulary and tokenizer')
    split = cutters[0][2] if cutters else parts[0].split
    shared = cutters[0][1] if cutters else None
    ids_MxV = np.array([[ids_of_words[word] for word in words] for ids_of_words in ids])
    end = None if parts[0].end is None else words.index(parts[0].words[parts[0].end])
    reader = MixtureReader([part.reader for part in parts], weights_M, ids_MxV)
    return OpenedModel(reader, words, None, end, split, shared)


def items(values: Iterable[Any]) -> list[Any]:
    """Returns the values as a list, or an empty list if `values` is not iterable."""
    try:
        return list(values)
    except TypeError:
        return []
