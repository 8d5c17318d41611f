"""Runs side by side: their recorded perplexities, what they say of a text, and a figure.

    nplm compare runs/brown-mlp9 runs/brown-lstm runs/brown-kneser_ney_5 --figure=compare.png
    nplm compare runs/brown-mlp9 runs/brown-kneser_ney_5 --text=essay.txt --weights=0.7,0.3

Prints a table of the perplexities that each run recorded; `*` marks the best of the runs on the same words, and a
warning on stderr says which runs are not on the same words, so that their perplexities are not comparable. --text=FILE
adds the perplexity of each line of a text scored on its own, with the share of its words outside the vocabulary (oov),
for each run, and for their mixture where all have one vocabulary; `nplm score --help` says how it is cut into words. No
run is marked as the best on a text of which more than 5% is unknown, or where the vocabularies differ.

--figure=FILE.png draws learning curves and bars of the perplexities, that of the text included.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.cli.parser import LINE_START, Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_text
from nplm_jax.utils.text import save_figure, to_json

if TYPE_CHECKING:
    from nplm_jax.runs.catalog import Run


def main(argv: Sequence[str]) -> None:
    """Prints the table and draws the figure."""
    parser = Parser('compare', f'{__doc__}\n{LINE_START}')
    parser.add_model_flags()
    parser.add_argument('--text', default='', metavar='FILE', help='text file to score with every run; default: none')
    parser.add_figure('PNG file to draw; default: none')
    parser.add_json()
    flags = parser.parse_args(argv)
    require(flags.text or not flags.weights, '--weights', flags.weights, 'belongs to --text; nplm mix finds weights')
    text = read_text('--text', expand('--text', flags.text)) if flags.text else ''
    require(bool(text.strip()) or not flags.text, '--text', flags.text, 'holds no words')

    from nplm_jax.cli import run_table
    from nplm_jax.runs import catalog

    runs = [catalog.read_run(catalog.expand_run(folder)) for folder in flags.workdir]
    names = run_table.run_names(flags.workdir)
    scores: dict[str, dict[str, Any]] = {}
    marked = False
    if text:
        scores, marked = score_text(flags.workdir, names, text.rstrip('\n').split('\n'), flags)
    for warning in warnings(runs, names):
        print(warning, file=sys.stderr)
    rows = [run_table.describe(run) for run in runs]
    if flags.json:
        print(to_json({'runs': rows, **({'text': list(scores.values())} if text else {})}))
    else:
        columns = {'text': [scores[name]['perplexity'] for name in names]} if text else {}
        print(run_table.make(runs, names, columns, marked))
        for score in scores.values():
            print(f'{score["name"]}: text perplexity {score["perplexity"]:.1f}, {score["oov"]:.1%} oov')
    if flags.figure:
        draw(runs, names, scores, expand('--figure', flags.figure))


def warnings(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """Returns a warning unless the recorded perplexities of all runs are of the same words."""
    from nplm_jax.cli.run_table import text_of

    others = [name for name, run in zip(names, runs) if text_of(run) != text_of(runs[0])]
    if not others:
        return []
    problem = f'not on the same words and vocabulary as {names[0]}: {", ".join(others)}'
    return [f'{problem}; their perplexities are not comparable with its']


def score_text(
    folders: Sequence[str], names: Sequence[str], lines: Sequence[str], flags: Any
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Scores a text with each run, and with their mixture where all have one vocabulary.

    Args:
        folders: The folders of the runs.
        names: Their names.
        lines: The text.
        flags: The command's flags, of which --weights and --tokens are read.

    Returns:
        For each name, and for `mixture`, the perplexity of all words and the share of words outside the vocabulary;
        and whether these perplexities say which run is the best. If not, a line on stderr says why.
    """
    from nplm_jax.cli.loaded_models import load_models
    from nplm_jax.cli.mixture_weights import read_weights
    from nplm_jax.data.text_checks import MAX_OOV
    from nplm_jax.inference import scoring
    from nplm_jax.models.mixture import ContextBins, Mixture

    require(not flags.weights or len(folders) > 1, '--weights', flags.weights, 'needs two runs or more')
    loaded = [load_models([folder]) for folder in folders]
    same = all(models.vocabulary.words == loaded[0].vocabulary.words for models in loaded)
    if not same and flags.weights:
        raise BadInput(f'--weights={flags.weights!r}: these runs have different vocabularies and cannot be mixed')
    if not same:
        print('the vocabularies differ: the perplexities of the text are not comparable', file=sys.stderr)
    readers = loaded[:1] if same else loaded  # one vocabulary: the words of the first run for all
    words = [models.read_lines(lines, flags.tokens) for models in readers] * (len(loaded) if same else 1)
    scored = [(name, models, models.mixture, cut) for name, models, cut in zip(names, loaded, words)]
    if same and len(folders) > 1:
        mixture = Mixture([m.models[0] for m in loaded], read_weights(flags.weights, folders), ContextBins())
        scored.append(('mixture', loaded[0], mixture, words[0]))
    scores: dict[str, dict[str, Any]] = {}
    for name, models, model, cut in scored:
        encoded = [models.vocabulary.encode(line) for line in cut]
        total = scoring.total(scoring.score(model, encoded, models.line_start))
        scores[name] = {'name': name, 'perplexity': total.perplexity, 'oov': total.oovs / total.tokens}
    is_known = all(score['oov'] <= MAX_OOV for score in scores.values())
    if len(folders) > 1 and not is_known:
        print('no run is marked as the best on the text: too many of its words are unknown', file=sys.stderr)
    return scores, same and is_known


def draw(
    runs: Sequence[Run], names: Sequence[str], scores: Mapping[str, Mapping[str, Any]], path: pathlib.Path
) -> None:
    """Draws the validation perplexity against epochs, and bars of the perplexities.

    Args:
        runs: The runs, whose recorded perplexities are drawn.
        names: Their names.
        scores: The perplexities of a text, from `score_text`; empty without one.
        path: The PNG file to write.
    """
    import matplotlib.figure

    from nplm_jax.runs.reporting import read_metrics

    curves = []
    for run, name in zip(runs, names):
        rows = [r for r in read_metrics(run.folder / 'metrics.jsonl') if r.get('valid_perplexity') is not None]
        curves += [(name, [r['epoch'] for r in rows], [r['valid_perplexity'] for r in rows])] if rows else []
    figure = matplotlib.figure.Figure(figsize=(11 if curves else 6, 4.2), layout='constrained')
    axes = figure.subplots(1, 2 if curves else 1, squeeze=False)[0]
    for name, epochs, perplexities in curves:
        axes[0].plot(epochs, perplexities, 'o-', markersize=3, label=name)
    if curves:
        axes[0].set(xlabel='epoch', ylabel='validation perplexity')
        axes[0].grid(alpha=0.3)
        axes[0].legend()
    bars = {split: [run.perplexity(split) or 0 for run in runs] for split in ('valid', 'test')}
    ticks = [*names, *(name for name in scores if name not in names)]
    if scores:
        shares = sorted({f'{score["oov"]:.1%}' for score in scores.values()}, key=lambda s: float(s[:-1]))
        unknown = ' to '.join(dict.fromkeys((shares[0], shares[-1])))
        bars[f'text, {unknown} unknown'] = [scores[name]['perplexity'] for name in ticks]
    width = 0.8 / len(bars)
    for place, (label, heights) in enumerate(bars.items()):
        finite = [height if height < float('inf') else 0 for height in heights]
        where = [i + (place - (len(bars) - 1) / 2) * width for i in range(len(heights))]
        drawn = axes[-1].bar(where, finite, width, label=label)
        axes[-1].bar_label(drawn, [f'{h:.0f}' if h else '' for h in finite], fontsize=8)
    axes[-1].set_xticks(range(len(ticks)), ticks, rotation=20, ha='right', parse_math=False)
    axes[-1].set_ylabel('perplexity')
    axes[-1].legend(loc='lower center', bbox_to_anchor=(0.5, 1), ncols=len(bars), frameon=False)  # above the bars
    save_figure(figure, path)
