"""Text from a trained model.

    python -m nplm_jax.cli generate --workdir=runs/NAME --prompt="the jury said"

Prints a sample a line. Several --workdir are mixed with equal weights. Without --prompt text begins as the corpus did.
"""

from nplm_jax.cli import trained
from nplm_jax.inference import generation
from nplm_jax.utils.errors import require


def main() -> None:
    """Reads the flags, generates, prints."""
    parser = trained.Parser(__doc__)
    parser.add_argument('--prompt', default='', help='the beginning')
    parser.add_argument('--samples', type=int, default=10, help='how many')
    parser.add_argument('--words', type=int, default=50, help='how many words after the beginning')
    parser.add_argument('--temperature', type=float, default=None, help='below 1 the likely words become likelier')
    parser.add_argument('--top_k', type=int, default=None, help='draw from the K likeliest words only')
    parser.add_argument('--top_p', type=float, default=None, help='draw from the likeliest words of total P only')
    parser.add_argument('--greedy', action='store_true', help='one text, always the likeliest word')
    parser.add_argument('--beam', type=int, default=None, help='the likeliest texts by beam search of this width')
    parser.add_argument('--seed', type=int, default=1, help='of the sampling')
    parser.add_argument('--rare', action='store_true', help='let the symbol for rare words be generated')
    flags = parser.parse_args()
    drawn = {'temperature': flags.temperature, 'top_k': flags.top_k, 'top_p': flags.top_p}
    given = {key: value for key, value in drawn.items() if value is not None}
    for key, value in given.items():
        sampled = not flags.greedy and flags.beam is None
        require(sampled, f'--{key}', value, 'belongs to sampling; not with --greedy or --beam')
    require(not flags.greedy or flags.beam is None, '--beam', flags.beam, 'not with --greedy')
    choice = generation.Choice(**({'top_k': 1} if flags.greedy else given), rare=flags.rare)
    models = trained.load(flags.workdir)
    words = trained.prompt(models, flags.prompt, flags.tokens)
    ids_N = models.encode(words)
    if flags.beam is None:
        samples = 1 if flags.greedy else flags.samples
        ids_BxT = generation.sample(models.model, ids_N, flags.words, samples, choice, flags.seed)
    else:
        ids_BxT, _ = generation.beam(models.model, ids_N, flags.words, flags.beam, flags.rare)
    for ids_T in ids_BxT:
        print(' '.join([*words, *models.vocabulary.decode(ids_T)]))
