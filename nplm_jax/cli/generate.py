"""Generates text with trained models.

    nplm generate runs/NAME --prompt="the jury said" --samples=5 --temperature=0.8
    nplm generate runs/NAME --beam=3 --words=10 --detokenize
    nplm generate runs/NAME --open --samples=5

Prints one text per line, beginning with the prompt. Several runs are mixed with --weights. --json prints the words of
each text, and for beam search also log10 P of the words after the prompt.

Runs with corpus.tokens=pieces, characters or bytes also generate line ends, and `---` separates texts. For these runs,
--words counts words separated by whitespace, and --max_new_tokens counts tokens, as in Hugging Face transformers.
Invalid UTF-8 becomes U+FFFD.

--open replaces each sampled rare-word symbol with a new word, spelled by the model that `nplm spell RUN` trained.
--temperature, --top_k and --top_p apply to words, not to spellings.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.inference import beam_search, generation
from nplm_jax.inference.drawn_spellings import decode_and_spell
from nplm_jax.inference.generation import cut_words
from nplm_jax.inference.scoring import LOG_10
from nplm_jax.reporting.text import to_json
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require

_WORDS, _TOKENS = 50, 100  # default lengths
_TOKENS_PER_WORD = 32  # maximum number of tokens if words are counted, because a text may have no whitespace


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_prompt()
    parser.add_argument('--samples', type=int, help='number of texts to draw; default: 10')
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument('--words', type=int, help='number of words after the prompt; default: 50')
    tokens = 'number of tokens after the prompt; default: 100 if the tokens are not words'
    lengths.add_argument('--max_new_tokens', type=int, help=tokens)
    parser.add_argument(
        '--temperature', type=float, help='sampling temperature; values below 1 favour likely words; default: 1'
    )
    parser.add_argument('--top_k', type=int, help='draw only from the K most likely words; default: from all words')
    most_likely = 'draw only from the most likely words with total probability P; default: from all words'
    parser.add_argument('--top_p', type=float, help=most_likely)
    searches = parser.add_mutually_exclusive_group()
    searches.add_argument(
        '--greedy', action='store_true', help='always choose the most likely word, which gives a single text'
    )
    searches.add_argument(
        '--beam', type=int, help='print the K most likely texts found by beam search; default: sample'
    )
    parser.add_argument('--seed', type=int, default=1, help='random seed of the samples')
    parser.add_switch('--rare', 'allow the rare-word symbol in the text')
    parser.add_switch('--open', 'replace each rare-word symbol with a newly spelled word')
    parser.add_switch(
        '--detokenize', "write ordinary text: no spaces before punctuation and 's, a line break for each paragraph mark"
    )
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Generates text and prints it."""
    sampling = {key: getattr(flags, key) for key in ('samples', 'temperature', 'top_k', 'top_p')}
    sampling = {key: value for key, value in sampling.items() if value is not None}
    is_search = flags.greedy or flags.beam is not None
    for key, value in {**sampling, **({'open': True} if flags.open else {})}.items():
        require(not is_search, f'--{key}', value, 'cannot be used with --greedy or --beam')

    samples = sampling.pop('samples', 1 if flags.greedy else 10)
    choice = generation.Choice(**({'top_k': 1} if flags.greedy else sampling), rare=flags.rare or flags.open)
    models = load_models(flags.runs, flags.weights)
    spelling = models.with_spelling(flags.runs).spelling if flags.open else None
    prompt = models.tokenize_prompt(flags.prompt, flags.tokens)
    ids_N, log_p_K, tokenizer = models.encode_prompt(prompt), None, models.vocabulary.tokenizer
    counts_words = flags.words is not None and tokenizer.tokens is not None
    if counts_words:
        require(flags.words >= 1, '--words', flags.words, 'must be 1 or more')
        require(
            flags.beam is None, '--words', flags.words, 'beam search counts tokens for this run; use --max_new_tokens'
        )
    default = _TOKENS if tokenizer.tokens else _WORDS
    num_tokens = default if flags.max_new_tokens is None else flags.max_new_tokens
    require(num_tokens >= 1, '--max_new_tokens', num_tokens, 'must be 1 or more')
    length = num_tokens if flags.words is None else flags.words * (_TOKENS_PER_WORD if counts_words else 1)

    def is_enough(ids_T: Sequence[int]) -> bool:
        return counts_words and len(tokenizer.decode(models.vocabulary.decode(ids_T)).split()) > flags.words

    if flags.beam is None:
        ids_BxT = generation.sample(models.mixture, ids_N, length, samples, choice, flags.seed, is_enough)
    else:
        ids_BxT, log_p_K = beam_search.beam(models.mixture, ids_N, length, flags.beam, flags.rare)
    if spelling is None:
        written = list(map(models.vocabulary.decode, ids_BxT))
        written = [cut_words(words, tokenizer, flags.words) for words in written] if counts_words else written
    else:
        written = decode_and_spell(spelling, ids_BxT, flags.seed)
    texts: list[dict[str, Any]] = []
    for i, new_words in enumerate(written):
        words = [*prompt, *new_words]
        shown = models.vocabulary.show(words)
        texts.append({'text': tokenizer.decode(words, flags.detokenize), 'words': shown})
        texts[-1] |= {} if log_p_K is None else {'log10_p': float(log_p_K[i]) / LOG_10}
    if flags.json:
        print(to_json({'prompt': models.vocabulary.show(prompt), 'texts': texts}))
    else:
        print(*(text['text'] for text in texts), sep='\n---\n' if tokenizer.is_lossless else '\n')
