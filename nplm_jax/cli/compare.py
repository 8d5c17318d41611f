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

import sys
from collections.abc import Sequence
from typing import Any

from nplm_jax.cli.parser import LINE_START, Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_text
from nplm_jax.utils.text import to_json


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
    if others := [name for name, run in zip(names, runs) if run_table.text_of(run) != run_table.text_of(runs[0])]:
        problem = f'not on the same words and vocabulary as {names[0]}: {", ".join(others)}'
        print(f'{problem}; their perplexities are not comparable with its', file=sys.stderr)
    rows = [run_table.describe(run) for run in runs]
    if flags.json:
        print(to_json({'runs': rows, **({'text': list(scores.values())} if text else {})}))
    else:
        columns = {'text': [scores[name]['perplexity'] for name in names]} if text else {}
        print(run_table.make(runs, names, columns, marked))
        for score in scores.values():
            print(f'{score["name"]}: text perplexity {score["perplexity"]:.1f}, {score["oov"]:.1%} oov')
    if flags.figure:
        run_table.draw(runs, names, scores, expand('--figure', flags.figure))


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
