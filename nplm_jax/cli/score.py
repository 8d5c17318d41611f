"""How likely a text is, in the columns of KenLM's `query`; also re-ranking and the likeliest next words.

    python -m nplm_jax.cli score --workdir=runs/NAME < text
    python -m nplm_jax.cli score --workdir=runs/NAME --nbest < alternatives
    python -m nplm_jax.cli score --workdir=runs/NAME --next=10 --prompt="the jury said"

Prints for each line `word=id length log10p`, separated by tabs, then its total and the number of its words outside the
vocabulary (OOV, id 0, scored as the one word <rare>); at the end the perplexity of all lines. `length` is that of the
n-gram that predicts the word, for a back-off model the longest that it has.

The score of a line does not depend on its neighbours: the line begins after the paragraph mark, which is not scored,
if the run's corpus has marks, else after nothing. --stream reads all lines as one stream without adding marks, which is
how a run's own perplexities are computed.

--nbest reads `id ||| words`, which other fields may follow, and prints the alternatives of each id, likeliest first,
with ` ||| log10p` appended. Several --workdir are mixed with equal weights.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nplm_jax.cli.loaded_models import LoadedModels, load_models
from nplm_jax.cli.parser import Parser
from nplm_jax.data.tokenization import PARAGRAPH_BOUNDARY
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import decode
from nplm_jax.utils.text import markdown_table

if TYPE_CHECKING:
    from nplm_jax.inference.scoring import Line

SEPARATOR = ' ||| '  # of the fields of --nbest
_MAX_BYTES = 2**28  # of stdin, which may have no end


def main(argv: Sequence[str]) -> None:
    """Scores lines, re-ranks alternatives or lists next words."""
    parser = Parser('score', __doc__)
    parser.add_model_flags()
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument('--stream', action='store_true', help='score all lines as one stream')
    modes.add_argument('--nbest', action='store_true', help='re-rank alternatives')
    modes.add_argument('--next', type=int, default=None, help='list this many words that may follow the prompt')
    parser.add_argument('--prompt', default='', help='the beginning for --next')
    flags = parser.parse_args(argv)
    if flags.next is not None:
        require(flags.next >= 1, '--next', flags.next, 'must be 1 or more')
        print(list_next_words(load_models(flags.workdir), flags.prompt, flags.tokens, flags.next))
        return
    require(not flags.prompt, '--prompt', flags.prompt, 'belongs to --next; the text to score is read from stdin')
    texts = read_stdin().split('\n')
    models = load_models(flags.workdir)
    output = rerank(models, texts, flags.tokens) if flags.nbest else query(models, texts, flags.tokens, flags.stream)
    print('\n'.join(output))


def query(models: LoadedModels, texts: Sequence[str], kind: str, stream: bool) -> list[str]:
    """Returns the lines that KenLM's query would print. Raises BadInput if no text has a word."""
    from nplm_jax.inference import scoring

    words, lines = _score(models, texts, kind, stream)
    output = []
    for line_words, line in zip(words, lines):
        columns = zip(line_words, line.ids_T.tolist(), line.lengths_T.tolist(), line.log10_p_T.tolist())
        scores = ''.join(f'{word}={i} {length} {p:.7g}\t' for word, i, length, p in columns)
        output.append(f'{scores}Total: {line.log10_p_T.sum():.8g} OOV: {int((line.ids_T == 0).sum())}')
    total = scoring.total(lines)
    return [
        *output,
        f'Perplexity including OOVs:\t{total.perplexity:.6f}',
        f'Perplexity excluding OOVs:\t{total.perplexity_known:.6f}',
        f'OOVs:\t{total.oovs}',
        f'Tokens:\t{total.tokens}',
    ]


def rerank(models: LoadedModels, texts: Sequence[str], kind: str) -> list[str]:
    """Returns the lines of each id together, likeliest first; the ids keep the order of their first lines."""
    fields = [text.split(SEPARATOR) for text in texts]
    for number, line_fields in enumerate(fields, start=1):
        if len(line_fields) < 2 or not line_fields[1].strip():
            raise BadInput(f'stdin:{number}: expected id{SEPARATOR}words')
    _, lines = _score(models, [words for _, words, *_ in fields], kind, stream=False)
    totals = [line.log10_p_T.sum() for line in lines]
    ranks = {key: rank for rank, key in enumerate(dict.fromkeys(key for key, *_ in fields))}
    order = sorted(range(len(fields)), key=lambda i: (ranks[fields[i][0]], -totals[i]))
    return [SEPARATOR.join([*fields[i], f'{totals[i]:.8g}']) for i in order]


def list_next_words(models: LoadedModels, prompt: str, kind: str, count: int) -> str:
    """Returns a table of the words that may follow a prompt, likeliest first, with each model's probability."""
    context_1xN = models.encode(models.tokenize_prompt(prompt, kind))[None]
    names, language_models = zip(*models.with_mixture())
    p_MxV = np.exp([model.next_word(context_1xN)[0] for model in language_models])
    best = np.argsort(-p_MxV[0], kind='stable')[:count]
    rows = [[models.vocabulary.words[i], *(f'{p:.4f}' for p in p_MxV[:, i])] for i in best]
    return markdown_table(['next word', *names], rows)


def read_stdin() -> str:
    """Returns the text on stdin. Raises BadInput if it is too large, not UTF-8 or without words."""
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadInput(f'stdin: more than {_MAX_BYTES:,} bytes; cut it into parts')
    text = decode('stdin', data)
    if not text.strip():
        raise BadInput('stdin: holds no words')
    return text.removesuffix('\n')


def _score(
    models: LoadedModels, texts: Sequence[str], kind: str, stream: bool
) -> tuple[list[list[str]], Sequence[Line]]:
    """Returns the words of each line and their scores."""
    from nplm_jax.inference import scoring

    words = [models.tokenize(text, kind) for text in texts]
    if not any(words):
        raise BadInput('stdin: holds no words')
    has_boundaries = PARAGRAPH_BOUNDARY in models.vocabulary.ids and models.settings[0].corpus.boundary_tokens
    prefix = [models.vocabulary.ids[PARAGRAPH_BOUNDARY]] if has_boundaries else []
    encoded = [models.vocabulary.encode(line_words) for line_words in words]
    return words, scoring.score(models.mixture, encoded, None if stream else prefix)
