"""Converts between the paragraph mark `<p>` and the sentence marks `<s>` and `</s>` of other toolkits.

Other toolkits read one sentence at a time, with `<s>` before the sentence and `</s>` after it. nplm_jax uses `<p>` for
both marks, and a stream continues across `<p>`. `<text>`, which begins a text, remains an ordinary word.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import pruning
from nplm_jax.ngram.backoff import BackoffModel, renumber, take
from nplm_jax.ngram.counts import NgramTable, find
from nplm_jax.utils.errors import BadInput

BEGIN, END = '<s>', '</s>'
UNKNOWN, UNKNOWN_IN_CAPITALS = '<unk>', '<UNK>'
LOG10_ZERO = -99.0  # the log10 of probability zero in a file
_ROUNDING = 1e-4  # error of a sum of logarithms that are rounded to seven digits, nats


def check_words(key: str, vocabulary: Vocabulary) -> None:
    """Raises BadInput for `key` if a vocabulary contains words that are special in KenLM."""
    reserved = [word for word in (UNKNOWN, UNKNOWN_IN_CAPITALS, BEGIN, END) if word in vocabulary.ids]
    if reserved:
        raise BadInput(key, f'the vocabulary contains {reserved[0]!r}, which is reserved in KenLM and ARPA files')


def split(model: BackoffModel, vocabulary: Vocabulary) -> tuple[BackoffModel, Vocabulary]:
    """Renames `<p>` to `</s>` and adds `<s>` as the last word.

    `nplm score` predicts a line from a context of unknown words followed by `<p>`. The n-grams that begin with `<s>`
    therefore get the probabilities after this context. `<s>` itself has probability zero. No other probability changes.
    If any n-gram continues across `<p>`, other words still follow `</s>`. In bigram models and models estimated line by
    line, no n-gram continues across `<p>`, so these models contain the same n-grams as models from lmplz.

    Args:
        model: A model.
        vocabulary: The vocabulary of the model, without `<s>` and `</s>`.

    Returns:
        The model and its vocabulary; both are unchanged if the vocabulary has no `<p>`.
    """
    if PARAGRAPH_BOUNDARY not in vocabulary.ids:
        return model, vocabulary
    begin = _begin(model, vocabulary.ids[PARAGRAPH_BOUNDARY])
    model = _without_followers(model, vocabulary.ids[PARAGRAPH_BOUNDARY])
    table, size = model.table, len(vocabulary) + 1
    keys, log_p, log_b = [np.arange(size)], [np.append(model.log_p[0], -np.inf)], []
    for k, (rows, words, begin_log_p, begin_log_b) in enumerate(begin, start=1):
        if k > 1:
            contexts = table.size(k - 1) + rows
            keys.append(np.concatenate([table.keys[k - 1] + table.prefixes(k), contexts * size + words]))
            log_p.append(np.append(model.log_p[k - 1], begin_log_p))
        if k < model.n:
            log_b.append(np.append(model.log_b[k - 1], begin_log_b))
    renamed = (END if word == PARAGRAPH_BOUNDARY else word for word in vocabulary.words)
    return BackoffModel(NgramTable(size, tuple(keys)), log_p, log_b), Vocabulary((*renamed, BEGIN), (0,) * size)


def merge(path: pathlib.Path, model: BackoffModel, vocabulary: Vocabulary) -> tuple[BackoffModel, Vocabulary]:
    """Merges `<s>` and `</s>` into the paragraph mark `<p>`, which ends one sentence and begins the next.

    Words after `<p>` get their probabilities after `<s>`, and `<p>` gets the probability of `</s>`. Any probability of
    `<s>` in the file is ignored, because models never predict `<s>`. No other probability changes. This function is the
    inverse of `split`.

    Args:
        path: The file of the model, for error messages.
        model: A model returned by `arpa.read`.
        vocabulary: The vocabulary of the model.

    Returns:
        The model and its vocabulary; both are unchanged if they have no `</s>`.

    Raises:
        BadInput: The vocabulary contains `<p>` in addition to the marks, `<s>` ends an n-gram, or `</s>` precedes a
            word.
    """
    if END not in vocabulary.ids:
        return model, vocabulary
    if PARAGRAPH_BOUNDARY in vocabulary.ids:
        raise BadInput(path, f'must not contain both {PARAGRAPH_BOUNDARY} and {END}, which would become the same word')
    merged = _without_marks(vocabulary)
    if BEGIN not in vocabulary.ids:
        return model, merged
    if stream := invert_split(model, vocabulary):
        return stream
    _check_marks(path, model.table, vocabulary.ids[BEGIN], vocabulary.ids[END])
    return _merge_ids(model, vocabulary, merged), merged


def invert_split(model: BackoffModel, vocabulary: Vocabulary) -> tuple[BackoffModel, Vocabulary] | None:
    """Inverts `split`. Returns the original model and vocabulary, or None if `split` did not create the given model."""
    if vocabulary.words[-1] != BEGIN or END not in vocabulary.ids or PARAGRAPH_BOUNDARY in vocabulary.ids:
        return None
    stream = _without_begin(model), _without_marks(vocabulary)
    unpredicted = np.array(model.log_p[0])
    unpredicted[-1] = -np.inf
    written = BackoffModel(model.table, [unpredicted, *model.log_p[1:]], model.log_b)
    return stream if _is_same(split(*stream)[0], written) else None


def line_beginnings(models: Sequence[BackoffModel], vocabulary: Vocabulary) -> list[BackoffModel]:
    """Returns a model of the n-grams from which `split` derives the n-grams after `<s>`, for all models together.

    The n-grams begin with unknown words and `<p>`, and all probabilities are one. When the model is mixed with the
    others at weight zero, its n-grams become n-grams of the mixture, with the mixed probabilities of the other models.
    Otherwise, `split` would ignore the probabilities of models with shorter contexts.

    Args:
        models: The models.
        vocabulary: The vocabulary of the models.

    Returns:
        A list that contains the model, or an empty list if none of `models` has a context that consists of unknown
        words followed by `<p>`.
    """
    if PARAGRAPH_BOUNDARY not in vocabulary.ids:
        return []
    mark, n = vocabulary.ids[PARAGRAPH_BOUNDARY], max(model.n for model in models)
    contexts = [np.concatenate(model.table.context_nodes(np.array([[mark]]), model.n)) for model in models]
    longest = max(int(np.flatnonzero(nodes >= 0)[-1]) for nodes in contexts)  # of unknown words and `<p>`, in words
    if longest < 2:
        return []
    ngrams: list[list[np.ndarray]] = [[] for _ in range(n + 1)]
    for model in models:
        words_BxK = np.full((1, 1), mark)
        for k, (rows, words, *_) in enumerate(_begin(model, mark), start=1):
            words_BxK = np.column_stack([words_BxK[rows], words]) if k > 1 else words_BxK
            unknown = min(longest - 1, n - k)
            padded = np.pad(words_BxK, ((0, 0), (unknown, 0)), constant_values=RARE_ID)
            for order in range(2, unknown + k + 1):
                ngrams[order].append(np.unique(padded[:, :order], axis=0))
    table = NgramTable(len(vocabulary), (np.arange(len(vocabulary)),))
    for order in range(2, n + 1):
        words_BxK = np.concatenate(ngrams[order])
        prefixes = table.nodes(words_BxK[:, :-1], order - 1)[order - 1][:, -1]
        keys = np.unique(prefixes * len(vocabulary) + words_BxK[:, -1])
        table = NgramTable(len(vocabulary), (*table.keys, keys))
    zeros = [np.zeros(table.size(k)) for k in range(1, n + 1)]
    return [BackoffModel(table, zeros, zeros[:-1])]


def _begin(model: BackoffModel, mark: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Returns the n-grams that begin a line after `mark`, preceded by unknown words.

    Returns:
        For each order k, four arrays with one entry per n-gram: the prefix (an index into the n-grams of the order
        below), the last word, log p, and log b. The only n-gram of order 1 is `<s>`, whose log p is not used.
    """
    table, n, size = model.table, model.n, model.table.vocabulary_size
    contexts = table.context_nodes(np.array([[mark]]), n)  # context nodes by length, for all n-grams so far
    zero = np.zeros(1, np.int64)
    begin = [(zero, zero, zero, _sum_log_b(model, contexts, 1))]
    for k in range(2, n + 1):
        followers = [table.successors(length + 1, contexts[length])[:2] for length in range(k - 1, n)]
        rows, words = np.divmod(np.unique(np.concatenate([rows * size + words for rows, words in followers])), size)
        contexts = [nodes[rows] for nodes in contexts]
        longer = [find(keys, nodes * size + words) for keys, nodes in zip(table.keys, contexts)]
        log_p = model.log_p_of([rows, *longer], contexts)
        contexts = [np.zeros_like(rows), *longer[: n - 1]]
        begin.append((rows, words, log_p, _sum_log_b(model, contexts, k)))
    return begin


def _without_followers(model: BackoffModel, mark: int) -> BackoffModel:
    """Removes n-grams that begin with the mark. If a longer n-gram has the mark inside, the model stays unchanged."""
    table, size, has_middle = model.table, model.table.vocabulary_size, model.n < 2
    for k in range(2, model.n):
        ends = np.flatnonzero(table.keys[k - 1] % size == mark)
        has_middle |= bool(model.log_b[k - 1][ends].any() or np.isin(table.prefixes(k + 1), ends).any())
    if has_middle:
        return model
    is_kept = [np.ones(table.size(k), bool) for k in range(1, model.n + 1)]
    for kept, begin in zip(is_kept[1:], table.beginning_with(mark)[1:]):
        kept[begin] = False
    log_b = np.array(model.log_b[0])
    log_b[mark] = 0
    return pruning.drop(BackoffModel(table, model.log_p, [log_b, *model.log_b[1:]]), is_kept)


def _sum_log_b(model: BackoffModel, contexts: list[np.ndarray], shortest: int) -> np.ndarray:
    """Returns the sum of log b over the contexts of at least `shortest` words, in nats."""
    lengths = range(shortest, model.n)
    zero = np.zeros(len(contexts[0]))
    return sum((np.where(contexts[i] >= 0, take(model.log_b[i - 1], contexts[i]), 0) for i in lengths), start=zero)


def _without_begin(model: BackoffModel) -> BackoffModel:
    """Removes the word with the highest id, and the n-grams that begin with it (the last n-grams of each order)."""
    size = model.table.vocabulary_size
    keys = [np.arange(size - 1)]
    for old_keys in model.table.keys[1:]:
        kept = old_keys[: np.searchsorted(old_keys, len(keys[-1]) * size)]
        keys.append(kept - kept // size)
    log_p, log_b = ([x[: len(k)] for x, k in zip(arrays, keys)] for arrays in (model.log_p, model.log_b))
    return BackoffModel(NgramTable(size - 1, tuple(keys)), log_p, log_b)


def _without_marks(vocabulary: Vocabulary) -> Vocabulary:
    """Renames `</s>` to `<p>` and removes `<s>`."""
    words = tuple(PARAGRAPH_BOUNDARY if word == END else word for word in vocabulary.words if word != BEGIN)
    return Vocabulary(words, (0,) * len(words))


def _is_same(a: BackoffModel, b: BackoffModel) -> bool:
    """Returns whether two models have the same n-grams and, up to the rounding in a file, the same log p and log b."""
    zero = LOG10_ZERO * np.log(10)
    return all(map(np.array_equal, a.table.keys, b.table.keys)) and all(
        np.allclose(np.maximum(x, zero), np.maximum(y, zero), rtol=0, atol=_ROUNDING)
        for x, y in zip((*a.log_p, *a.log_b), (*b.log_p, *b.log_b))
    )


def _merge_ids(model: BackoffModel, vocabulary: Vocabulary, merged: Vocabulary) -> BackoffModel:
    """Merges `<s>` and `</s>` into one word. `</s>` must not begin an n-gram, and `<s>` must not end one."""
    renamed = dict.fromkeys((BEGIN, END), PARAGRAPH_BOUNDARY)
    result = renumber(model, merged.encode(renamed.get(word, word) for word in vocabulary.words))
    mark = merged.ids[PARAGRAPH_BOUNDARY]
    result.log_p[0][mark] = model.log_p[0][vocabulary.ids[END]]
    for new_log_b, log_b in zip(result.log_b[:1], model.log_b):
        new_log_b[mark] = log_b[vocabulary.ids[BEGIN]]
    return result


def _check_marks(path: pathlib.Path, table: NgramTable, begin: int, end: int) -> None:
    """Raises BadInput if `<s>` ends an n-gram or `</s>` precedes a word."""
    ends = np.array([end])  # the n-grams that end in </s>
    for k in range(2, table.n + 1):
        last_words = table.keys[k - 1] % table.vocabulary_size
        if (last_words == begin).any() or np.isin(table.prefixes(k), ends).any():
            raise BadInput(
                path, f'cannot merge {BEGIN} and {END}, because {BEGIN} ends a {k}-gram or {END} precedes a word'
            )
        ends = np.flatnonzero(last_words == end)
