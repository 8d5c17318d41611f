"""How likely a text is, in the columns of KenLM's `query`; also re-ranking and the likeliest next words.

    python -m nplm_jax.cli score --workdir=runs/NAME < text
    python -m nplm_jax.cli score --workdir=runs/NAME --nbest < alternatives
    python -m nplm_jax.cli score --workdir=runs/NAME --next=10 --prompt="the jury said"

For each line `word=id length log10p`, tabs between, then its total and its words outside the vocabulary (OOV, id 0,
scored as the one word <rare>); at the end the perplexity of all. `length` is that of the n-gram looked at, for a
back-off model the longest that it has.

A line is scored on its own, so that its score does not hang on its neighbours: after the paragraph mark, which is not
scored, where the run's corpus has marks, else after nothing. --stream makes one stream of all lines instead, without
adding marks, which is how a run's own perplexities are computed.

--nbest reads `id ||| words`, other fields may follow, and prints the alternatives of each id, likeliest first, with
` ||| log10p` added. Several --workdir are mixed with equal weights.
"""

import sys
from collections.abc import Sequence

import numpy as np

from nplm_jax.cli import trained
from nplm_jax.data import tokenization
from nplm_jax.data.tokenization import PARAGRAPH_BOUNDARY
from nplm_jax.inference import scoring
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import decode
from nplm_jax.utils.text import markdown_table

FIELDS = ' ||| '
_MOST_BYTES = 2**28  # of stdin, which may have no end


def main() -> None:
    """Reads the flags and does one of the three."""
    parser = trained.Parser(__doc__)
    parser.add_argument('--stream', action='store_true', help='score all lines as one stream')
    parser.add_argument('--nbest', action='store_true', help='re-rank alternatives')
    parser.add_argument('--next', type=int, default=None, help='list so many words that may follow the prompt')
    parser.add_argument('--prompt', default='', help='the beginning for --next')
    flags = parser.parse_args()
    asked = [f for f in ('stream', 'nbest') if getattr(flags, f)]
    if flags.next is None:
        require(not flags.prompt, '--prompt', flags.prompt, 'belongs to --next; the text to score is read from stdin')
        require(len(asked) < 2, '--stream', True, 'not with --nbest, whose lines are scored each on its own')
        text = _read()
        models = trained.load(flags.workdir)
        show = rerank if flags.nbest else query
        print('\n'.join(show(models, text.split('\n'), flags.tokens, flags.stream)))
    else:
        require(not asked, f'--{asked[0] if asked else ""}', True, 'not with --next')
        require(flags.next >= 1, '--next', flags.next, 'must be 1 or more')
        print(following(trained.load(flags.workdir), flags.prompt, flags.tokens, flags.next))


def query(models: trained.Trained, texts: Sequence[str], kind: str, stream: bool) -> list[str]:
    """The lines that KenLM's query would print. Raises: BadInput when no text has a word."""
    words, lines = _score(models, texts, kind, stream)
    shown = []
    for line_words, line in zip(words, lines):
        columns = zip(line_words, line.ids_T.tolist(), line.lengths_T.tolist(), line.log10_p_T.tolist())
        each = ''.join(f'{w}={i} {length} {p:.7g}\t' for w, i, length, p in columns)
        shown.append(f'{each}Total: {line.log10_p_T.sum():.8g} OOV: {int((line.ids_T == 0).sum())}')
    total = scoring.total(lines)
    return [
        *shown,
        f'Perplexity including OOVs:\t{total.perplexity:.6f}',
        f'Perplexity excluding OOVs:\t{total.perplexity_known:.6f}',
        f'OOVs:\t{total.oovs}',
        f'Tokens:\t{total.tokens}',
    ]


def rerank(models: trained.Trained, texts: Sequence[str], kind: str, _stream: bool) -> list[str]:
    """The alternatives of each id together, ids in the order of their first lines, the likeliest alternative first."""
    fields = [text.split(FIELDS) for text in texts]
    for number, f in enumerate(fields, start=1):
        if len(f) < 2 or not f[1].strip():
            raise BadInput(f'stdin:{number}: expected id{FIELDS}words')
    _, lines = _score(models, [f[1] for f in fields], kind, False)
    totals = [line.log10_p_T.sum() for line in lines]
    places = {key: place for place, key in enumerate(dict.fromkeys(f[0] for f in fields))}
    order = sorted(range(len(fields)), key=lambda i: (places[fields[i][0]], -totals[i]))
    return [FIELDS.join([*fields[i], f'{totals[i]:.8g}']) for i in order]


def following(models: trained.Trained, text: str, kind: str, count: int) -> str:
    """A table of the words that may follow a beginning, likeliest first, with each model's probability."""
    context_1xN = models.encode(trained.prompt(models, text, kind))[None]
    names, each = zip(*models.named())
    p_MxV = np.exp([model.next_word(context_1xN)[0] for model in each])
    best = np.argsort(-p_MxV[0], kind='stable')[:count]
    rows = [[models.vocabulary.words[i], *(f'{p:.4f}' for p in p_MxV[:, i])] for i in best]
    return markdown_table(['next word', *names], rows)


def _score(models, texts, kind, stream):
    """The words of each line, and its scores."""
    corpus, ids = models.settings[0].corpus, models.vocabulary.ids
    words = [tokenization.tokenize_prompt(text, corpus, ids, kind) for text in texts]
    if not any(words):
        raise BadInput('stdin: holds no words')
    begin = [ids[PARAGRAPH_BOUNDARY]] if PARAGRAPH_BOUNDARY in ids and corpus.boundary_tokens else []
    encoded = [models.vocabulary.encode(w) for w in words]
    return words, scoring.score(models.model, encoded, None if stream else begin)


def _read() -> str:
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise BadInput(f'stdin: more than {_MOST_BYTES:,} bytes; cut it into parts')
    text = decode('stdin', data)
    if not text.strip():
        raise BadInput('stdin: holds no words')
    return text.removesuffix('\n')
