"""Re-ranks n-best lists of Moses and Kaldi by models and by the scores in the lists.

    nplm rescore runs/NAME --score_weights=1,0.5 < alternatives
    nplm rescore runs/NAME --tune=references < alternatives

Reads lines `id ||| words ||| scores ||| ...`, the format of Moses; only the first two fields are needed. Spaces around
the separators are not part of a field. An empty sentence has a log10p of 0 without --end. Prints the alternatives of
each id, the most likely first, with ` ||| log10p` appended. With --score_weights, alternatives are sorted by their
totals and get ` ||| log10p ||| total`. The total is --model_weight times log10p, plus --word_weight times the number of
words, plus the weighted sum of the numbers in the third field (names such as `LM0=` are skipped).

--format=kaldi reads lines `UTTERANCE-N words` from stdin and lines `UTTERANCE-N number` from the files of
--score_files; Kaldi's nbest-to-linear writes both. These numbers are costs, so their weights should be negative. It
prints the lines in the new order.

--tune=FILE tunes the weights instead and prints them as flags, and their gain on stderr. It minimises the word error
rate of the first alternatives by exact line searches along one weight after another (Och, 2003), from five starting
points. It requires the package rapidfuzz. FILE has one reference for each id: with Moses, line N + 1 is the
reference of id N; with Kaldi, a line is `UTTERANCE words`. Tune on lists other than those on which you report results.
"""

import argparse

from nplm_jax.apps.decoding import nbest
from nplm_jax.cli.outputs import print_or_write
from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.cli.score import read_stdin, score_texts
from nplm_jax.runs.command_models import check_models, load_models


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_switch('--open', 'score unknown words by their spelling')
    parser.add_switch('--end', 'also score the end of each line')
    parser.add_argument('--score_weights', default='', help='weights of the scores, such as 1,0.5; default: none')
    parser.add_argument('--model_weight', type=float, default=1.0, help="weight of the model's log10 P")
    parser.add_argument('--word_weight', type=float, default=0.0, help='score added for each word')
    parser.add_argument('--format', default='moses', choices=('moses', 'kaldi'), help='format of the lists')
    files = 'with --format=kaldi: files of scores, such as ac.txt,lm.txt; default: none'
    parser.add_argument('--score_files', default='', help=files)
    tune_help = 'print weights tuned on these references; default: re-rank'
    parser.add_argument('--tune', default='', metavar='FILE', help=tune_help)
    parser.add_results('file to write the alternatives or the weights to; default: stdout')
    parser.set_defaults(stream=False)


def main(flags: argparse.Namespace) -> None:
    """Re-ranks alternatives, or tunes the weights."""
    check_models(flags.runs)  # before stdin is waited for
    weights = nbest.Weights.of(flags)
    alternatives = nbest.read(flags, read_stdin().split('\n'), weights)
    models = load_models(flags.runs, flags.weights)
    _, lines = score_texts(models, [a.words for a in alternatives], flags)
    log10_p = [float(line.log10_p_T.sum()) for line in lines]
    print_or_write(flags, nbest.show(flags, alternatives, log10_p, weights))
