"""Formats the content of results.json as a table, followed by notes. This module does not import JAX."""

import math
from collections.abc import Mapping
from typing import Any

from nplm_jax.config.sections import CorpusSettings, PaperRow
from nplm_jax.data.stream import RARE
from nplm_jax.data.text_checks import describe_oov
from nplm_jax.reporting.catalog import PER_UNIT, SPLITS
from nplm_jax.reporting.text import markdown_table, null_to_inf

_MIXTURES = (
    'The mixture weights are 0.5 each (fixed), fitted to the valid words (learned), or fitted separately for each\n'
    'range of context frequencies (by frequency).'
)


def format_results(results: Mapping[str, Any], paper: PaperRow, corpus: CorpusSettings | None = None) -> str:
    """Returns the table of perplexities, followed by the notes that apply to the run. See `notes`."""
    return '\n'.join([perplexity_table(results, paper), *notes(results, corpus)])


def perplexity_table(results: Mapping[str, Any], paper: PaperRow) -> str:
    """Returns the perplexities of a run, and of its mixtures with the trigram, as a Markdown table.

    Args:
        results: The content of results.json.
        paper: The section `paper.*` of the config, which contains the paper's perplexities. They form the last row,
            unless the section is empty.
    """
    rows = [[results['name'], *(null_to_inf(results['perplexity'][s]) for s in SPLITS)]]
    for kind, mixed in results.get('mixture', {}).items():
        held_out = (null_to_inf(mixed[s]) for s in SPLITS[1:])
        rows.append([f'  mixed with the trigram, {kind.replace("_", " ")}', '-', *held_out])
    if paper.row:
        rows.append([f'paper, {paper.row}', *(getattr(paper, s) or '-' for s in SPLITS)])
    return markdown_table(['perplexity', *SPLITS], rows)


def notes(results: Mapping[str, Any], corpus: CorpusSettings | None = None) -> list[str]:
    """Returns the notes to print below the table of a run.

    The notes cover the following topics, if they apply: out-of-vocabulary words, sampling, calibration, the results per
    word, character and byte, mixtures, and words of probability zero.

    Args:
        results: The content of results.json.
        corpus: The section `corpus.*` of the config, for advice about out-of-vocabulary words.
    """
    lines = []
    if any((oov := results.get('oov', {})).values()):
        lines.append(f'{RARE} replaces {oov["valid"]:.1%} of the validation and {oov["test"]:.1%} of the test words.')
        share, size = max(oov['valid'], oov['test']), results.get('vocabulary', 0)
        lines += filter(None, [describe_oov(share, 'validation or test words', corpus, size)])
    if evaluated := results.get('evaluated_train_words'):
        lines.append(f'The training perplexity is estimated on {evaluated:,} sampled words (eval.train_words).')
    if fitted := results.get('calibration_words'):
        lines.append(
            f'The calibration was fitted to {fitted:,} of the validation words, which biases their perplexity downward.'
        )
    if sample := results.get('sample'):
        errors = ', '.join(f'{s} +- {null_to_inf(sample["standard_error"][s]):.1f}' for s in SPLITS[1:])
        words = f'{sample["words"]["valid"]:,} and {sample["words"]["test"]:,} sampled words (eval.words)'
        lines.append(
            f'The validation and test perplexities are estimated on {words}; the standard errors are {errors}.'
        )
    if results.get('sizes') == {}:
        lines.append('The tokens do not preserve the text, so values per word, character and byte are undefined.')
    for split in results.get('bits_per_byte', {}):
        lines += _per_unit(split, results)
    if results.get('mixture'):
        lines.append(_MIXTURES)
    for split, count in results.get('impossible_words', {}).items():
        if count:
            lines.append(f'{count:,} {split} words have probability zero, so the {split} perplexity is infinite.')
    return lines


def _per_unit(split: str, results: Mapping[str, Any]) -> list[str]:
    """Returns a note with the results of a split per word, character and byte. Returns [] if they are infinite.

    The perplexities in the table are per token, including boundary tokens and subwords.
    """
    per_word, per_character, per_byte = (null_to_inf(results[key][split]) for key in PER_UNIT)
    if math.isinf(per_byte):
        return []
    sentence, size = f'{split} has ', results.get('sizes', {}).get(split, {})
    tokens, words = size.get('tokens'), size.get('words')
    if math.isfinite(per_word) and (tokens is None or tokens != words):
        of_words = f'{words:,} words in the {tokens:,} tokens of the table: ' if tokens and words else ''
        shown = f'{per_word:,.1f}' if per_word < 1e6 else f'{per_word:.2g}'  # without spaces, a line is one word
        sentence += f'{of_words}perplexity {shown} per word, '
    return [f'{sentence}{per_character:.3f} bits per character, {per_byte:.3f} bits per byte.']
