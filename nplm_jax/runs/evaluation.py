"""Evaluates a trained model: its perplexity, alone and mixed with a trigram, and examples of predicted words."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nplm_jax.config.sections import EvalSettings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import BOUNDARY_TOKENS
from nplm_jax.inference import generation
from nplm_jax.inference.perplexity import Score, evaluate, evaluate_sample, per_unit
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import interpolated, lines
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.progress import progress_bar

_MAX_WORDS = 100  # test sets with more words get no table of predicted words
_MAX_CONTEXT = 2000  # maximum context, in words, of models without an order
_NUM_PREDICTED = 3  # predicted words shown per context

ALL_WORDS = EvalSettings(train_words=0, words=0)

Trigram = tuple[mixture.CachedScores, mixture.ContextBins]


def fit_trigram(data: Dataset) -> Trigram:
    """Fits the interpolated trigram of the paper's mixtures, which reads the corpus line by line if the network does.

    Returns:
        The trigram and its context bins.
    """
    size, marks = len(data.vocabulary), lines.marks_of(data)
    trigram = interpolated.fit(data.tokens_T, data.train, data.valid, size, marks=marks)
    return mixture.CachedScores(trigram), trigram.bins


def measure(
    model: LanguageModel,
    data: Dataset,
    settings: EvalSettings = ALL_WORDS,
    trigram: Callable[[], Trigram] | None = None,
    known: mixture.Scores | None = None,
) -> dict[str, Any]:
    """Computes the perplexity of a model on the training, validation and test splits. Shows a progress bar.

    Args:
        model: Any language model.
        data: The corpus.
        settings: The number of words to score in each split. By default, all words are scored.
        trigram: A function that returns the trigram to mix with the model, or None for no mixture. The function is
            ignored if splits are sampled.
        known: The scores of words that were already scored during training.

    Returns:
        The entries of results.json that describe the evaluation, by key.
    """
    num_words = {'valid': settings.words, 'test': settings.words, 'train': settings.train_words}
    totals = {name: min(num_words[name], len(span)) or len(span) for name, span in data.splits.items()}
    is_sample = any(totals[name] < len(data.splits[name]) for name in ('valid', 'test'))
    total = sum(totals.values()) - sum(map(len, (known or {}).values()))
    sizes = ', '.join(f'{totals[name]:,} {name}' for name in num_words)
    scored = ' (valid is already scored)' if known else ''
    mixing = ', and mixing with the trigram' if trigram and not is_sample else ''
    print(f'Evaluating on {sizes} words{scored}{mixing}', flush=True)
    with progress_bar(total, 'evaluating', ' words', delay=0, log=sys.stdout) as bar:
        cached, scores = mixture.CachedScores(model, known, bar.update), {}
        # Small splits come first, to obtain an early estimate of the remaining time.
        for name, num_sampled in num_words.items():
            bar.set_description(f'evaluating on the {name} words')
            scores[name] = evaluate_sample(cached, data.tokens_T, data.splits[name], num_sampled)
        mixed = {}
        if trigram and not is_sample:
            bar.set_description('estimating the trigram')
            fitted = trigram()
            bar.set_description('mixing with the trigram')
            mixed = {'mixture': mix_with_trigram(cached, data, fitted)}
    return {
        'words': {name: len(span) for name, span in data.splits.items()},
        'perplexity': {name: scores[name].perplexity for name in data.splits},
        'oov': (oov := data.oov()),
        'sizes': {name: size._asdict() for name, size in data.sizes.items()},
        **_per_unit(scores, data, oov),
        'impossible_words': {name: scores[name].impossible for name in data.splits},
        **({'evaluated_train_words': scores['train'].words} if scores['train'].words < len(data.train) else {}),
        **({'sample': _describe_sample(scores)} if is_sample else {}),
        **mixed,
    }


def _per_unit(scores: Mapping[str, Score], data: Dataset, oov: Mapping[str, float]) -> dict[str, Any]:
    """Returns the results of `per_unit` for the validation and test texts, keyed by split and unit.

    Texts with out-of-vocabulary words are skipped, because P(<rare>) is not the probability of the actual word.
    """
    numbers: dict[str, dict[str, float]] = {}
    for split, size in data.sizes.items():
        if split in oov and not oov[split]:
            nll = scores[split].nll_per_word * size.tokens  # an estimate if the split is sampled
            for key, number in per_unit(nll, size).items():
                numbers.setdefault(key, {})[split] = number
    return numbers


def _describe_sample(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Returns the number of sampled validation and test words, and the standard errors of the perplexities."""
    splits = ('valid', 'test')
    return {
        'words': {name: scores[name].words for name in splits},
        'standard_error': {name: scores[name].standard_error for name in splits},
    }


def mix_with_trigram(model: LanguageModel, data: Dataset, trigram: Trigram) -> dict[str, dict[str, Any]]:
    """Mixes a model with the interpolated trigram in the three ways described in the paper (section 4.2).

    Returns:
        The validation and test perplexities and the weights of the model for `fixed` (0.5), `learned` (one weight) and
        `by_frequency` (one weight per context bin of the trigram).
    """
    mixtures = mixture.paper_mixtures([model, trigram[0]], data.tokens_T, data.valid, trigram[1])
    return {
        name: {
            **{s: evaluate(mixed, data.tokens_T, data.splits[s]).perplexity for s in ('valid', 'test')},
            'weights': mixed.weights_QxM[:, 0].tolist(),
        }
        for name, mixed in zip(('fixed', 'learned', 'by_frequency'), mixtures)
    }


def predictions_table(model: LanguageModel, data: Dataset) -> str:
    """Formats a table of the predictions for the last word of each test paragraph. Returns '' for a large test set."""
    if len(data.test) > _MAX_WORDS:
        return ''
    words, shown, tokens_T = data.vocabulary.words, data.vocabulary.shown, np.asarray(data.tokens_T)
    paragraphs: list[list[int]] = [[]]  # the positions of the words in each paragraph
    for t in range(data.test.start, data.test.stop):
        if words[tokens_T[t]] in BOUNDARY_TOKENS:
            paragraphs.append([])
        else:
            paragraphs[-1].append(t)
    rows = []
    for *before, last in (positions for positions in paragraphs if len(positions) > 1):
        context = tokens_T[max(0, last - (model.n or _MAX_CONTEXT + 1) + 1) : last]
        log_p_V = model.next_word(context[None])[0]
        likeliest = generation.largest(log_p_V, _NUM_PREDICTED)
        predicted = ', '.join(f'{shown[i]} {np.exp(log_p_V[i]):.3f}' for i in likeliest)
        text = data.vocabulary.tokenizer.decode([words[tokens_T[t]] for t in before])
        rows.append([text, shown[tokens_T[last]], predicted])
    return markdown_table(['context', 'next word', 'predictions, with probabilities'], rows) if rows else ''
