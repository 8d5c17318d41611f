"""Text from a trained model.

    python -m nplm_jax.cli generate --workdir=runs/NAME --prompt="the jury said"

Prints one sample a line. Several --workdir are mixed with equal weights. Without --prompt the text begins as the corpus
did.
"""

from __future__ import annotations

from collections.abc import Sequence

from nplm_jax.cli.loaded_models import load_models
from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import require


def main(argv: Sequence[str]) -> None:
    """Generates text and prints it."""
    parser = Parser('generate', __doc__)
    parser.add_model_flags()
    parser.add_argument('--prompt', default='', help='the beginning of the text')
    parser.add_argument('--samples', type=int, default=None, help='how many texts; default: 10')
    parser.add_argument('--words', type=int, default=50, help='how many words after the prompt; default: 50')
    parser.add_argument('--temperature', type=float, default=None, help='below 1 the likely words become likelier')
    parser.add_argument('--top_k', type=int, default=None, help='draw from the K likeliest words only')
    parser.add_argument('--top_p', type=float, default=None, help='draw from the likeliest words of total P only')
    searches = parser.add_mutually_exclusive_group()
    searches.add_argument('--greedy', action='store_true', help='one text, always the likeliest word')
    searches.add_argument('--beam', type=int, default=None, help='the K likeliest texts by beam search of width K')
    parser.add_argument('--seed', type=int, default=1, help='the seed of the samples; default: 1')
    parser.add_argument('--rare', action='store_true', help='let the symbol for rare words be generated')
    flags = parser.parse_args(argv)
    sampling = {key: getattr(flags, key) for key in ('samples', 'temperature', 'top_k', 'top_p')}
    sampling = {key: value for key, value in sampling.items() if value is not None}
    for key, value in sampling.items():
        search = flags.greedy or flags.beam is not None
        require(not search, f'--{key}', value, 'belongs to sampling; not with --greedy or --beam')

    from nplm_jax.inference import generation

    samples = sampling.pop('samples', 1 if flags.greedy else 10)
    choice = generation.Choice(**({'top_k': 1} if flags.greedy else sampling), rare=flags.rare)
    models = load_models(flags.workdir)
    words = models.tokenize_prompt(flags.prompt, flags.tokens)
    ids_N = models.encode(words)
    if flags.beam is None:
        ids_BxT = generation.sample(models.mixture, ids_N, flags.words, samples, choice, flags.seed)
    else:
        ids_BxT, _ = generation.beam(models.mixture, ids_N, flags.words, flags.beam, flags.rare)
    for ids_T in ids_BxT:
        print(' '.join([*words, *models.vocabulary.decode(ids_T)]))
