"""Text from trained models.

    nplm generate runs/NAME --prompt="the jury said" --samples=5 --temperature=0.8
    nplm generate runs/NAME --beam=3 --words=10 --detokenize
    nplm generate runs/NAME --open --samples=5

Prints one text a line, the prompt first. Several runs are mixed, with --weights. With --json: the words of each text,
and of a beam search also log10 P of what follows the prompt.

--open writes a new word wherever the symbol for rare words is drawn, spelled by what `nplm spell RUN` has trained.
--temperature, --top_k and --top_p choose among words, not among spellings.
"""

from collections.abc import Sequence
from typing import Any

from nplm_jax.cli.parser import PROMPT_START, Parser
from nplm_jax.utils.errors import require
from nplm_jax.utils.text import to_json


def main(argv: Sequence[str]) -> None:
    """Generates text and prints it."""
    parser = Parser('generate', f'{__doc__}\n{PROMPT_START}')
    parser.add_model_flags()
    parser.add_prompt()
    parser.add_argument('--samples', type=int, help='number of texts to draw; default: 10')
    parser.add_argument('--words', type=int, default=50, help='number of words after the prompt')
    parser.add_argument('--temperature', type=float, help='below 1, likely words become more likely; default: 1')
    parser.add_argument('--top_k', type=int, help='draw only from the K most likely words; default: from all')
    most_likely = 'draw only from the most likely words with total probability P; default: from all'
    parser.add_argument('--top_p', type=float, help=most_likely)
    searches = parser.add_mutually_exclusive_group()
    searches.add_argument('--greedy', action='store_true', help='one text, always with the most likely word')
    searches.add_argument('--beam', type=int, help='the K most likely texts, by beam search of width K; default: draw')
    parser.add_argument('--seed', type=int, default=1, help='random seed of the samples')
    parser.add_switch('--rare', 'allow the symbol for rare words in the text')
    parser.add_switch('--open', 'replace each symbol for rare words by a newly spelled word')
    parser.add_switch(
        '--detokenize', "write ordinary text: no blanks before punctuation and 's, a line break for each paragraph mark"
    )
    parser.add_json()
    flags = parser.parse_args(argv)
    sampling = {key: getattr(flags, key) for key in ('samples', 'temperature', 'top_k', 'top_p')}
    sampling = {key: value for key, value in sampling.items() if value is not None}
    is_search = flags.greedy or flags.beam is not None
    for key, value in {**sampling, **({'open': True} if flags.open else {})}.items():
        require(not is_search, f'--{key}', value, 'belongs to sampling; not with --greedy or --beam')

    from nplm_jax.cli.loaded_models import load_models
    from nplm_jax.inference import generation
    from nplm_jax.inference.scoring import LOG_10

    samples = sampling.pop('samples', 1 if flags.greedy else 10)
    choice = generation.Choice(**({'top_k': 1} if flags.greedy else sampling), rare=flags.rare or flags.open)
    models = load_models(flags.workdir, flags.weights)
    spelling = models.with_spelling(flags.workdir).spelling if flags.open else None
    prompt = models.tokenize_prompt(flags.prompt, flags.tokens)
    ids_N, log_p_K = models.encode_prompt(prompt), None
    if flags.beam is None:
        ids_BxT = generation.sample(models.mixture, ids_N, flags.words, samples, choice, flags.seed)
    else:
        ids_BxT, log_p_K = generation.beam(models.mixture, ids_N, flags.words, flags.beam, flags.rare)
    if spelling is None:
        written = list(map(models.vocabulary.decode, ids_BxT))
    else:
        written = generation.decode_and_spell(spelling, ids_BxT, flags.seed)
    texts: list[dict[str, Any]] = []
    for i, new_words in enumerate(written):
        words = [*prompt, *new_words]
        texts.append({'text': models.vocabulary.tokenizer.decode(words, flags.detokenize), 'words': words})
        texts[-1] |= {} if log_p_K is None else {'log10_p': float(log_p_K[i]) / LOG_10}
    if flags.json:
        print(to_json({'prompt': prompt, 'texts': texts}))
    else:
        print(*(text['text'] for text in texts), sep='\n')
