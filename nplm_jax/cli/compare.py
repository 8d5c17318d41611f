"""Compares the perplexities of runs on their test sets or on any text, and shows them in a table and a figure.

    nplm compare runs/brown-mlp9 runs/brown-lstm runs/brown-kneser_ney_5 --figure=compare.png
    nplm compare runs/brown-mlp9 runs/brown-kneser_ney_5 --text=essay.txt --weights=0.7,0.3

Prints a table of the perplexities recorded for each run. `*` marks the best of the runs that were evaluated on the same
words. A warning on stderr lists the runs that were evaluated on other words, because their perplexities are not
comparable. Runs with different tokens, such as words and subwords, are compared by perplexity per word and bits per
byte. This comparison requires that all runs were evaluated on the same complete test text, and that no words are
unknown or changed.

--text=FILE scores a text with each run, and prints the perplexity and the share of words outside the vocabulary (oov).
Each line of the text is scored separately. If all runs have the same vocabulary and tokenizer, their mixture is scored
as well. Otherwise, the runs are compared by bits per byte, provided that no word in the text is unknown or changed, and
that all runs read the same spaces and line ends. `nplm score --help` describes how the text is split into words. No run
is marked as the best if more than 5% of the words are unknown.

--figure=FILE.png draws learning curves and a bar chart of the perplexities, including the perplexity of the text.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.text_checks import MAX_OOV
from nplm_jax.data.tokenizers.token_text import keeps_letters
from nplm_jax.inference import scoring
from nplm_jax.models.mixture import ContextBins, Mixture
from nplm_jax.reporting import catalog, run_table
from nplm_jax.reporting.catalog import Run
from nplm_jax.reporting.text import to_json
from nplm_jax.runs.command_models import load_models
from nplm_jax.runs.mixture_weights import read_weights
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_text

_HEADERS = {'perplexity': 'text', 'bits_per_byte': 'text bits/byte'}  # the column header for each key of the scores


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_argument('--text', default='', metavar='FILE', help='text file to score with each run; default: no text')
    parser.add_figure('PNG file to write the figure to; default: no figure')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the table and draws the figure."""
    require(flags.text or not flags.weights, '--weights', flags.weights, 'requires --text; nplm mix learns weights')
    require(bool(flags.text) or not flags.tokens, '--tokens', flags.tokens, 'requires --text')
    text = read_text('--text', expand('--text', flags.text)) if flags.text else ''
    require(bool(text.strip()) or not flags.text, '--text', flags.text, 'contains no words')

    runs = [catalog.read_run(catalog.expand_run(folder)) for folder in flags.runs]
    names = run_table.run_names(flags.runs)
    scores: dict[str, dict[str, Any]] = {}
    marked = ''
    if text:
        scores, marked = score_text(names, text.rstrip('\r\n'), flags)
    if others := [name for name, run in zip(names, runs) if run.text != runs[0].text]:
        problem = f'{", ".join(others)}: the evaluated words or the vocabulary differ from those of {names[0]}'
        print(f'{problem}; the perplexities are not comparable{_advise(names, runs)}', file=sys.stderr)
    rows = [run_table.describe(run) for run in runs]
    if flags.json:
        print(to_json({'runs': rows, **({'text': list(scores.values())} if text else {})}))
    else:
        columns = {header: [scores[name][key] for name in names] for key, header in _HEADERS.items() if text}
        columns = {header: column for header, column in columns.items() if any(column)}
        print(run_table.make(runs, names, columns, _HEADERS.get(marked, '')))
        for score in scores.values():
            bits = '' if score['bits_per_byte'] is None else f', {score["bits_per_byte"]:.3f} bits per byte'
            print(f'{score["name"]}: text perplexity {score["perplexity"]:.1f}{bits}, {score["oov"]:.1%} oov')
    if flags.figure:
        run_table.draw(runs, names, scores, expand('--figure', flags.figure))


def _advise(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Returns advice on comparing runs with different tokens, or '' if all runs have the same tokens."""
    if not run_table.differ_in_tokens(runs):
        return ''
    if others := [name for name, run in zip(names[1:], runs[1:]) if not run.has_test_text_of(runs[0])]:
        problem = 'because the test texts or samples differ or a digest is missing'
        return f', nor are the bits per byte of {", ".join(others)} with those of {names[0]}, {problem}'
    unknown = [name for name, run in zip(names, runs) if run.bits_per_byte is None]
    return (
        f'; {", ".join(unknown)}: bits per byte are undefined, because words are unknown or changed'
        if unknown
        else '; bits per byte are comparable'
    )


def score_text(names: Sequence[str], text: str, flags: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], str]:
    """Scores a text with each run, and with their mixture if all have the same vocabulary and tokenizer.

    Args:
        names: The names of the runs.
        text: The text, without line ends at its end.
        flags: The command's flags.

    Returns:
        The scores and the key by which the runs are compared. The scores map each name, and `mixture`, to the
        perplexity of all words, the bits per byte of the text (None if words are unknown or changed), and the share of
        words outside the vocabulary. The key is `perplexity` or `bits_per_byte`. If the runs cannot be compared, the
        key is '', and a message on stderr gives the reason.
    """
    require(not flags.weights or len(flags.runs) > 1, '--weights', flags.weights, 'requires two or more runs')
    loaded = [load_models([folder]) for folder in flags.runs]
    differences = [models.vocabulary.difference(loaded[0].vocabulary, names[0]) for models in loaded]
    difference = next((f'{name}: {found}' for name, found in zip(names, differences) if found), '')
    same = not difference
    require(same or not flags.weights, '--weights', flags.weights, f'cannot be used ({difference})')
    if not same:
        print(f'{difference}; the perplexities of the text are not comparable', file=sys.stderr)
    readers = loaded[:1] if same else loaded  # with the same vocabulary, all runs read the text as the same words
    joined = [unspaced_scripts.join(models.vocabulary, models.split_lines(text)) for models in readers]
    words = [(texts, models.read_lines(texts, flags.tokens)) for models, texts in zip(readers, joined)] * (
        len(loaded) if same else 1
    )
    scored = [(name, models, models.mixture, *read) for name, models, read in zip(names, loaded, words)]
    if same and len(loaded) > 1:
        mixture = Mixture([m.models[0] for m in loaded], read_weights(flags.weights, flags.runs), ContextBins())
        scored.append(('mixture', loaded[0], mixture, *words[0]))
    scores: dict[str, dict[str, Any]] = {}
    for name, models, model, texts, cut in scored:
        require(any(cut), '--text', flags.text, 'contains no words')
        encoded = [models.vocabulary.encode(line) for line in cut]
        total = scoring.total(scoring.score(model, encoded, models.line_start))
        is_exact = not total.oovs and keeps_letters(models.vocabulary.tokenizer, zip(texts, cut))
        bits = -total.log10_p * math.log2(10) / _num_bytes(texts) if is_exact else None
        numbers = {'perplexity': total.perplexity, 'bits_per_byte': bits, 'oov': total.oovs / total.tokens}
        scores[name] = {'name': name, **numbers}
    changed = [name for name, score in scores.items() if score['bits_per_byte'] is None and not score['oov']]
    if changed and not same:
        print(f'{", ".join(changed)}: bits per byte are omitted, because the tokens change the text', file=sys.stderr)
    is_known = all(score['oov'] <= MAX_OOV for score in scores.values())
    if len(loaded) > 1 and not is_known:
        print('no run is marked as the best on the text, because too many words are unknown', file=sys.stderr)
    if same and is_known:
        return scores, 'perplexity'
    # Tokenizers that are not lossless read one space between words.
    differ = len({models.vocabulary.tokenizer.is_lossless for models in readers}) > 1
    has_more_spaces = _num_bytes(joined[0]) > 1.01 * _num_bytes(' '.join(line.split()) for line in joined[0])
    if any(texts != joined[0] for texts in joined) or (differ and has_more_spaces):
        print('bits per byte are not comparable, because only some runs read all spaces and line ends', file=sys.stderr)
        return scores, ''
    return scores, 'bits_per_byte' if all(score['bits_per_byte'] is not None for score in scores.values()) else ''


def _num_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) for text in texts)
