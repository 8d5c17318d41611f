"""Re-ranking of alternatives, the n-best lists of Moses and Kaldi, by models and the scores that the lists have.

    nplm score --nbest runs/NAME --score_weights=1,0.5 < alternatives
    nplm score --nbest runs/NAME --tune=references < alternatives

Reads lines `id ||| words ||| scores ||| ...`, the format of Moses, of which only the first two fields are
needed, and prints the alternatives of each id, likeliest first, with ` ||| log10p` appended. With --score_weights the
numbers in the third field (names such as `LM0=` are skipped) are weighed in: ` ||| log10p ||| total` is appended, the
total being --model_weight times log10p, plus --word_weight times the number of words, plus the sum of each weight times
its number, and the largest total is first. --format=kaldi reads lines `UTTERANCE-N words`, and the numbers, which are
costs and want negative weights, from the files of --score_files, `UTTERANCE-N number`: nbest-to-linear writes both. It
prints the lines in the new order.

--tune=FILE prints weights as flags instead, and on stderr what they gain. They make the word error rate of the first
alternatives small, or 1 - BLEU with --measure=bleu: by exact searches along one weight after another (Och, 2003), from
five starts. FILE has a reference for each id: of Moses in the line of the id, counted from 0; of Kaldi in a line
`UTTERANCE words`. Tune on other lists than those that you report.
"""

from collections.abc import Sequence

from nplm_jax.cli.parser import TEXT_START, Parser


def main(argv: Sequence[str]) -> None:
    """Re-ranks alternatives, or tunes the weights."""
    parser = Parser('score --nbest', f'{__doc__}\n{TEXT_START}')
    parser.add_switch('--nbest', 'what makes `nplm score` this command')
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
    measures = {'default': 'wer', 'choices': ('wer', 'bleu'), 'help': 'with --tune: error to minimise'}
    parser.add_owned('tune', '--measure', **measures)
    parser.add_json()
    parser.set_defaults(stream=False)
    flags = parser.parse_args(argv)

    from nplm_jax.apps.decoding import nbest
    from nplm_jax.cli.loaded_models import load_models
    from nplm_jax.cli.run_table import check_finished
    from nplm_jax.cli.score import read_stdin, score_texts

    check_finished(flags.workdir)  # before stdin is waited for
    weights = nbest.Weights.of(flags)
    alternatives = nbest.read(flags, read_stdin().split('\n'), weights)
    models = load_models(flags.workdir, flags.weights)
    _, lines = score_texts(models, [a.words for a in alternatives], flags)
    nbest.show(flags, alternatives, [float(line.log10_p_T.sum()) for line in lines], weights)
