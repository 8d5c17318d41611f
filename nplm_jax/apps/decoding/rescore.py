"""Re-ranks n-best lists in Moses or Kaldi format with language models and the scores in the lists.

    nplm rescore runs/NAME --score_weights=1,0.5 < alternatives
    nplm rescore runs/NAME --tune=references < alternatives

Reads lines in Moses format, `id ||| words ||| scores ||| ...`. Only the first two fields are required. Spaces around
separators are ignored. Without --end, the log10p of an empty sentence is 0. Prints the alternatives of each id, the
most likely first, with ` ||| log10p` appended. With --score_weights, sorts the alternatives by their total and appends
` ||| log10p ||| total`. The total is --model_weight times log10p, plus --word_weight times the number of words, plus
the weighted sum of the numbers in the third field (names such as `LM0=` are skipped).

--format=kaldi reads lines `UTTERANCE-N words` from stdin and lines `UTTERANCE-N cost` from --score_files. Kaldi's
nbest-to-linear writes both. Use negative weights for costs. Prints the lines in the new order.

--tune=FILE tunes the weights and prints them as flags, with the word error rates on stderr. Tuning minimizes the word
error rate of the best alternatives by exact line searches along one weight after another (Och, 2003), from five
starting points. Tuning requires the package rapidfuzz. FILE has one reference per id. In Moses format, line N + 1 is
the reference of id N. In Kaldi format, each line is `UTTERANCE words`. Report results for lists that were not used for
tuning.
"""

import argparse
import dataclasses
import sys

from nplm_jax.apps.decoding import nbest
from nplm_jax.cli.outputs import print_or_write
from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.cli.score import read_stdin, score_texts
from nplm_jax.reporting.text import to_json
from nplm_jax.runs.command_models import check_models, load_models


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_switch('--open', 'score unknown words with the spelling model trained by `nplm spell RUN`')
    parser.add_switch('--end', 'also score the end of each line')
    scores = 'weights of the scores in the lists, such as 1,0.5; default: ignore these scores'
    parser.add_argument('--score_weights', default='', metavar='W[,W]', help=scores)
    parser.add_argument(
        '--model_weight',
        type=float,
        default=1.0,
        metavar='W',
        help="weight of the model's log10 probability in the total",
    )
    parser.add_argument('--word_weight', type=float, default=0.0, metavar='W', help='score to add for each word')
    parser.add_argument('--format', default='moses', choices=('moses', 'kaldi'), help='format of the n-best lists')
    files = 'files that contain the scores for --format=kaldi, such as ac.txt,lm.txt; default: no scores'
    parser.add_argument('--score_files', default='', metavar='FILE[,FILE]', help=files)
    tune_help = 'file of references on which to tune the weights, which are then printed; default: re-rank the lists'
    parser.add_argument('--tune', default='', metavar='FILE', help=tune_help)
    parser.add_results('file to write the alternatives or the weights to; default: stdout')
    parser.set_defaults(stream=False)


def main(flags: argparse.Namespace) -> None:
    """Re-ranks the alternatives, or tunes the weights."""
    check_models(flags.runs)  # before waiting for stdin
    weights = nbest.Weights.of(flags)
    alternatives = nbest.read(flags, read_stdin().split('\n'), weights)
    models = load_models(flags.runs, flags.weights)
    *_, lines = score_texts(models, [a.words for a in alternatives], flags)
    log10_p = [float(line.log10_p_T.sum()) for line in lines]
    if flags.tune:
        tuned, errors = nbest.tune(alternatives, log10_p)
        results, text = {**dataclasses.asdict(tuned), 'errors': errors}, tuned.to_flags()
        if not flags.json:
            gains = ', '.join(f'{error:.4f} {choice}' for choice, error in errors.items())
            print(f'word error rate: {gains}', file=sys.stderr)
    else:
        ranked = nbest.rank(alternatives, log10_p, weights)
        results, text = {'alternatives': [*map(nbest.to_dict, ranked)]}, nbest.to_text(ranked, flags.format, weights)
    print_or_write(flags, to_json(results) if flags.json else text)
