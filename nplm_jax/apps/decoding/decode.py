"""Decodes the CTC emissions of a speech recognizer into words by beam search with trained models.

    nplm decode runs/brown-lstm runs/brown-kneser_ney_5 --emissions=test.npz --labels=labels.txt --lexicon=lexicon.txt
    nplm decode runs/brown-lstm --emissions=valid.npz --labels=... --lexicon=... --references=valid.txt --tune

RUN may also be an ARPA file. Input files:
    --emissions   one array per utterance, frames x labels: natural log-probabilities, normalized in each frame
    --labels      one label per line, in the order of the columns, including the CTC blank and the label between words
    --lexicon     lines of the form `word l a b e l s |`; a word may have several lines
    --references  lines of the form `UTTERANCE words`; requires the package rapidfuzz

With --lexicon, out-of-vocabulary words are scored as <rare>. Without it, the search allows all words that the labels
can spell, and penalizes out-of-vocabulary words. Prints one line per utterance: its name, a tab, and its words. With
--references, also prints the word error rate to stderr. With --tune, prints the best weights as flags instead of the
words.
"""

import argparse
import operator
import sys
import tokenize
from collections.abc import Sequence

import numpy as np
import tqdm

from nplm_jax.apps.decoding import decoder, nbest, reranking
from nplm_jax.apps.decoding.frames import check_sums, log_probabilities
from nplm_jax.cli.outputs import print_or_write
from nplm_jax.cli.parser import Parser
from nplm_jax.data.stream import RARE
from nplm_jax.data.zips import open_zip
from nplm_jax.kenlm.model import Model
from nplm_jax.runs import process
from nplm_jax.runs.mixture_weights import read_weights
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import open_regular, read_lines

_MAX_UTTERANCES = 100_000
_TOLERANCE = 0.05  # how far the probabilities of a frame may sum from 1, for example after rounding to bfloat16
_EXPECTED = 'expected natural log-probabilities (log_softmax), frames x labels'
_SILENCE = '|'
_ROUNDS = 2  # rounds of --tune, each of which tunes the weights on the last results and searches again


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    emissions = 'file with one array of log-probabilities (frames x labels) per utterance; required'
    parser.add_argument('--emissions', required=True, metavar='FILE.npz', help=emissions)
    labels = 'file with the labels of the acoustic model, one per line; required'
    parser.add_argument('--labels', required=True, metavar='FILE', help=labels)
    parser.add_argument(
        '--lexicon', default='', metavar='FILE', help='file with the spellings of words; default: allow all words'
    )
    parser.add_argument(
        '--references', default='', metavar='FILE', help='file with the reference transcripts; default: no references'
    )
    parser.add_owned(
        'references',
        '--tune',
        action='store_true',
        help='tune the weights on the references and print them instead of the words',
    )
    weights = 'weights of the runs in the mixture, as in `nplm score`; default: equal weights'
    parser.add_argument('--weights', default='', help=weights)
    lm_weight = "weight of the language model's log-probability in the total score"
    parser.add_argument('--lm_weight', type=float, default=1.0, metavar='W', help=lm_weight)
    parser.add_argument('--word_score', type=float, default=0.0, metavar='X', help='score to add for each word')
    parser.add_argument('--blank', default='-', metavar='LABEL', help='label of the CTC blank')
    parser.add_argument('--silence', default=_SILENCE, metavar='LABEL', help='label that separates words')
    width = 'maximum number of hypotheses to keep after each frame'
    parser.add_argument('--beam_width', type=int, default=50, metavar='N', help=width)
    parser.add_output('file to write the words or the weights to; default: stdout')


def main(flags: argparse.Namespace) -> None:
    """Decodes the utterances, or tunes the weights."""
    require(flags.beam_width > 0, '--beam_width', flags.beam_width, 'must be at least 1')
    require(not flags.weights or len(flags.runs) > 1, '--weights', flags.weights, 'requires two or more runs')

    labels = [line.rstrip('\r\n') for _, line in read_lines(expand('--labels', flags.labels))]
    allowed = f'must be one of the {len(labels)} labels in --labels'
    require(flags.blank in labels, '--blank', flags.blank, allowed)
    # Subword labels mark the beginnings of words, so a label between words is not required.
    may_be_missing = flags.silence == _SILENCE and not flags.lexicon
    require(flags.silence in labels or may_be_missing, '--silence', flags.silence, allowed)
    require(flags.silence != flags.blank, '--silence', flags.silence, 'must not be the blank')
    spelling_labels = [label for label in labels if label != flags.blank]
    lexicon = read_lexicon(flags.lexicon, spelling_labels) if flags.lexicon else None
    emissions = read_emissions(flags, len(labels))
    references = read_references(flags, emissions)
    process.set_up_process()
    mixed = read_weights(flags.weights, flags.runs)[0].tolist() if len(flags.runs) > 1 else None
    model = Model(flags.runs if mixed else flags.runs[0], mixed)
    if lexicon and (unknown := sum(word not in model for word in lexicon)):
        words = f'{unknown:,} of {len(lexicon):,} words in the lexicon are unknown and are scored as {RARE}'
        print(words, file=sys.stderr)
    chosen = decoder.Weights(flags.lm_weight, flags.word_score)

    def search(weights: decoder.Weights) -> list[list[decoder.Hypothesis]]:
        options = {'blank': flags.blank, 'silence': flags.silence, 'beam_width': flags.beam_width}
        searcher = decoder.Decoder(model, labels, lexicon, weights, **options)
        return [searcher.decode(array) for array in tqdm.tqdm(emissions.values(), unit=' utterances', disable=None)]

    def error(lists: Sequence[Sequence[decoder.Hypothesis]]) -> float:
        return decoder.word_error_rate([best[0].words for best in lists], references.values())

    lists = search(chosen)
    if flags.tune:
        tried = [(error(lists), chosen)]
        for _ in range(_ROUNDS):
            chosen, _ = decoder.tune(lists, list(references.values()))
            lists = search(chosen)
            tried.append((error(lists), chosen))
        least, chosen = min(reversed(tried), key=operator.itemgetter(0))
        print(f'word error rate: {tried[0][0]:.4f} with the given weights, {least:.4f} tuned', file=sys.stderr)
        print_or_write(flags, f'--lm_weight={chosen.lm_weight:.6g} --word_score={chosen.word_score:.6g}')
        return
    rows = (f'{name}\t{" ".join(hypotheses[0].words)}' for name, hypotheses in zip(emissions, lists))
    print_or_write(flags, '\n'.join(rows))
    if references:
        print(f'word error rate: {error(lists):.4f}', file=sys.stderr)


def read_lexicon(path: str, labels: Sequence[str]) -> dict[str, list[list[str]]]:
    """Reads the --lexicon file.

    Args:
        path: The value of --lexicon.
        labels: The labels other than the blank.

    Returns:
        The spellings of each word. A spelling is a list of labels.

    Raises:
        BadInput: The file cannot be read or is empty, or a line is malformed or has an unknown label.
    """
    lexicon: dict[str, list[list[str]]] = {}
    known, file = set(labels), expand('--lexicon', path)
    for number, line in read_lines(file):
        word, *spelling = line.split() or ['']
        if not spelling:
            raise BadInput(f'{file}:{number}', 'must contain a word and its labels')
        if unknown := [label for label in spelling if label not in known]:
            allowed = f'the {len(known)} labels in --labels other than the blank'
            raise BadInput(f'{file}:{number}', f'{unknown[0]!r} is not one of {allowed}')
        lexicon.setdefault(word, []).append(spelling)
    require(bool(lexicon), '--lexicon', path, 'contains no words')
    return lexicon


def read_emissions(flags: argparse.Namespace, num_labels: int) -> dict[str, np.ndarray]:
    """Reads the --emissions file.

    Args:
        flags: The flags of `nplm decode`.
        num_labels: The number of labels.

    Returns:
        The natural log-probabilities of each utterance, float64, frames x labels.

    Raises:
        BadInput: The file is damaged or empty, or an array does not match the number of labels.
    """
    arrays: dict[str, np.ndarray] = {}
    name, path = f'--emissions={flags.emissions!r}', expand('--emissions', flags.emissions)
    with open_regular(name, path) as file, open_zip(name, 'cannot be read', file, _MAX_UTTERANCES) as archive:
        for entry in archive.infolist():
            utterance = entry.filename.removesuffix('.npy')
            with archive.open(entry) as member:
                try:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                except (ValueError, TypeError, MemoryError, SyntaxError, tokenize.TokenError) as error:
                    raise BadInput(name, f'{utterance!r} cannot be read ({first_line(error)})') from None
            key, is_float = f'--emissions: {utterance}', array.dtype.kind == 'f' and array.size > 0
            require(is_float, key, f'{array.dtype} {array.shape}', 'must be a floating-point array, frames x labels')
            arrays[utterance] = log_probabilities(array, num_labels, key)
            # Check the sums. Otherwise, logits, padding or transposed arrays would silently be decoded into wrong
            # words.
            with np.errstate(over='ignore'):
                check_sums(key, np.exp(array.astype(np.float64)), _TOLERANCE, _EXPECTED)
    require(bool(arrays), '--emissions', flags.emissions, 'contains no utterances')
    return arrays


def read_references(flags: argparse.Namespace, utterances: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """Reads the --references file.

    Args:
        flags: The flags of `nplm decode`.
        utterances: The emissions of each utterance.

    Returns:
        The words of each utterance, in the order of the emissions. Empty without --references.

    Raises:
        BadInput: The file cannot be read, omits or repeats an utterance, or contains no words, or rapidfuzz is missing.
    """
    if not flags.references:
        return {}
    table = nbest.read_table(expand('--references', flags.references))
    words = {name: text.split() for name, (_, text) in table.items()}
    for name in utterances:
        require(name in words, '--references', flags.references, f'has no line for the utterance {name!r}')
    references = {name: words[name] for name in utterances}
    require(
        any(references.values()), '--references', flags.references, 'contains no words, so the error rate is undefined'
    )
    reranking.word_edits((), ())  # raises BadInput before the search if rapidfuzz is not installed
    return references
