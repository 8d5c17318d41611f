r"""Prunes an ARPA file by entropy or by a word list.

    nplm prune lm.arpa --entropy=1e-7 --output=small.arpa
    nplm prune lm.arpa --limit_vocab_file=words.txt --output=small.arpa

--entropy removes every n-gram whose removal increases the perplexity by less than the given fraction. It then
recomputes the back-off weights, in the same way as SRILM's `ngram -prune` (Stolcke, 1998). Because the file has no
counts, the probability of a context is computed as the product of the model's probabilities. If the training text is
available, set model.prune_entropy in `nplm train` instead. That method uses the counts of the text.

--limit_vocab_file keeps only the words listed in a file, separated by whitespace, and removes all n-grams that contain
other words, in the same way as KenLM's `filter`. <unk>, <s> and </s> are kept. The probabilities do not change, so the
scores of the remaining words do not change unless their contexts contain a removed word. Removed words are scored as
<unk>. If both flags are given, --entropy is applied first, because it requires probabilities that sum to one.

Prints the number of n-grams of each order.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from nplm_jax.cli.parser import Parser
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import arpa, entropy_pruning, sentence_marks
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.kept_words import keep_words
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_failure_as_bad_input
from nplm_jax.utils.untrusted import read_text


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_argument('file', metavar='FILE', help='ARPA file to prune')
    entropy = (
        'remove n-grams whose removal increases the perplexity by less than this fraction; default: keep all n-grams'
    )
    parser.add_argument('--entropy', type=float, metavar='THRESHOLD', help=entropy)
    words = 'file that lists the words to keep, separated by whitespace; default: keep all words'
    parser.add_argument('--limit_vocab_file', default='', metavar='FILE', help=words)
    parser.add_output('ARPA file to write; required', metavar='FILE', required=True)


def main(flags: argparse.Namespace) -> None:
    """Writes the pruned file."""
    if flags.entropy is None and not flags.limit_vocab_file:
        raise BadInput('--entropy', 'is required unless --limit_vocab_file is given')
    in_range = flags.entropy is None or 0 < flags.entropy < 1
    require(in_range, '--entropy', flags.entropy, 'must be greater than 0 and less than 1, such as 1e-7')
    path, output = expand('FILE', flags.file), expand('--output', flags.output)

    listed: set[str] = set()
    if flags.limit_vocab_file:
        text = read_text('--limit_vocab_file', expand('--limit_vocab_file', flags.limit_vocab_file))
        listed.update(arpa.FIELD.findall(text))
    model, vocabulary = arpa.read(path, as_kenlm=True)
    sizes, stream = _sizes(model), None
    if flags.entropy is not None:
        # Pruning n-grams after <s> and after </s> separately would make the file useless for reading a stream.
        stream = sentence_marks.invert_split(model, vocabulary)
        model, vocabulary = stream or (model, vocabulary)
        context_p = entropy_pruning.context_probabilities(model, *map(vocabulary.ids.get, arpa.SENTENCE_MARKS))
        model = entropy_pruning.prune(model, context_p, flags.entropy, key='--entropy')
        if stream:
            model, vocabulary = sentence_marks.split(model, vocabulary)
    if flags.limit_vocab_file:
        is_kept_V = np.array([word in listed for word in vocabulary.words])
        require(
            bool(is_kept_V.any()), '--limit_vocab_file', flags.limit_vocab_file, f'contains none of the words in {path}'
        )
        marks = [vocabulary.ids[mark] for mark in arpa.SENTENCE_MARKS if mark in vocabulary.ids]
        is_kept_V[[RARE_ID, *marks]] = True
        model = keep_words(model, is_kept_V)
        kept = tuple(itertools.compress(vocabulary.words, is_kept_V))
        vocabulary = Vocabulary(kept, (0,) * len(kept))
    with write_failure_as_bad_input('--output', output):
        arpa.write_with_marks(model, vocabulary, output)
    left = [*_sizes(model), *[0] * (len(sizes) - model.n)]
    counts = ', '.join(f'{a:,} of {b:,} {k}-grams' for k, (a, b) in enumerate(zip(left, sizes), start=1))
    print(f'{output}: {output.stat().st_size:,} bytes, {counts}')


def _sizes(model: BackoffModel) -> list[int]:
    return [model.table.size(k) for k in range(1, model.n + 1)]
