"""How likely a text is, in the columns of KenLM's `query`; also re-ranking of alternatives.

    nplm score runs/NAME < text
    nplm score runs/NAME --summary < large_text
    nplm score runs/NAME --nbest --score_weights=1,0.5 < alternatives
    nplm score runs/NAME --nbest --tune=references < alternatives
    nplm score runs/NAME --open < text

Reads stdin. Prints for each line `word=id length log10p`, separated by tabs, then its total and the number of its words
outside the vocabulary (OOV, id 0, scored as the one word <rare>); at the end the perplexity of all lines and the OOV
rate, the share of such words. `length` is that of the n-gram that predicts the word, for a back-off model the longest
that it has. Several runs are mixed, with --weights. --summary prints the end alone.

Text is cut into words as the corpus of the first run was; if that came with its punctuation split off, as Brown did,
punctuation is split off where the vocabulary needs it. --tokens=whitespace is for text that is tokenized already.

--open scores words outside the vocabulary too: their P is that of <rare> times that of their spelling, which
`nplm spell RUN` has trained. A line more has the bits per character: of each word, of one blank or line end after it,
and of one line end for each mark.

The score of a line does not depend on its neighbours. --stream reads all lines as one stream, without adding marks
between them, which is how a run's own perplexities are computed. The end of a line is scored only with --end: as the
paragraph mark <p>, which the run's corpus has to have.

--nbest reads lines `id ||| words ||| scores ||| ...`, the format of Moses, of which only the first two fields are
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

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.cli.parser import LINE_START, Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import decode, expand
from nplm_jax.utils.text import to_json

if TYPE_CHECKING:
    import argparse

    from nplm_jax.cli.loaded_models import LoadedModels
    from nplm_jax.cli.nbest import Alternative, Weights
    from nplm_jax.inference.scoring import Line, Totals
    from nplm_jax.models.open_vocabulary import OpenVocabulary

_MAX_BYTES = 2**28  # of stdin, which may have no end


def main(argv: Sequence[str]) -> None:
    """Scores lines or re-ranks alternatives."""
    parser = Parser('score', f'{__doc__}\n{LINE_START}')
    parser.add_model_flags()
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument('--stream', action='store_true', help='score all lines as one stream')
    modes.add_argument('--nbest', action='store_true', help='re-rank alternatives')
    parser.add_argument('--summary', action='store_true', help='print the perplexity and counts of the whole text only')
    parser.add_argument('--open', action='store_true', help='score unknown words by their spelling')
    parser.add_argument('--end', action='store_true', help='also score the end of each line')
    parser.add_argument(
        '--score_weights', default='', help='with --nbest: weights of the scores, such as 1,0.5; default: none'
    )
    parser.add_argument('--model_weight', type=float, default=1.0, help="with --nbest: weight of the model's log10 P")
    parser.add_argument('--word_weight', type=float, default=0.0, help='with --nbest: score added for each word')
    parser.add_argument(
        '--format', default='moses', choices=('moses', 'kaldi'), help='with --nbest: format of the lists'
    )
    parser.add_argument(
        '--score_files', default='', help='with --format=kaldi: files of scores, such as ac.txt,lm.txt; default: none'
    )
    parser.add_argument(
        '--tune',
        default='',
        metavar='FILE',
        help='with --nbest: print weights tuned on these references; default: re-rank',
    )
    parser.add_argument('--measure', default='wer', choices=('wer', 'bleu'), help='with --tune: error to minimise')
    parser.add_json()
    flags = parser.parse_args(argv)
    require(math.isfinite(flags.model_weight), '--model_weight', flags.model_weight, 'must be finite')
    require(math.isfinite(flags.word_weight), '--word_weight', flags.word_weight, 'must be finite')

    from nplm_jax.cli import nbest
    from nplm_jax.cli.loaded_models import check_finished, load_models

    check_finished(flags.workdir)  # before stdin is waited for
    weights = nbest.Weights(flags.model_weight, flags.word_weight, nbest.parse_score_weights(flags.score_weights))
    for key in ('score_weights', 'word_weight', 'score_files', 'tune'):
        value = getattr(flags, key)
        require(flags.nbest or not value, f'--{key}', value, 'belongs to --nbest')
    require(not (flags.nbest and flags.summary), '--summary', True, 'does not belong to --nbest')
    require(flags.nbest or flags.format == 'moses', '--format', flags.format, 'belongs to --nbest')
    require(bool(flags.tune) or flags.measure == 'wer', '--measure', flags.measure, 'belongs to --tune')
    weight_flags = flags.score_weights or flags.word_weight or (flags.model_weight if flags.model_weight != 1 else '')
    require(not flags.tune or not weight_flags, '--tune', flags.tune, 'finds the weights: give none')
    texts = read_stdin().split('\n')
    alternatives = _read_alternatives(flags, texts, weights) if flags.nbest else []
    references = nbest.read_references(expand('--tune', flags.tune), alternatives, flags.format) if flags.tune else []
    models = load_models(flags.workdir, flags.weights)
    model = models.with_spelling(flags.workdir) if flags.open else None
    if flags.nbest:
        words, lines = score_texts(models, [a.words for a in alternatives], flags.tokens, end=flags.end, model=model)
        log10_p = [float(line.log10_p_T.sum()) for line in lines]
        if flags.tune:
            _tune(flags, alternatives, log10_p, references)
            return
        ranked = nbest.rank(alternatives, log10_p, weights)
        text = nbest.to_text(ranked, flags.format, weights)
        print(to_json({'alternatives': nbest.to_dicts(ranked)}) if flags.json else text)
        return
    words, lines = score_texts(models, texts, flags.tokens, flags.stream, flags.end, model)
    summary = summarize(words, lines, flags.open)
    if flags.json:
        print(to_json(summary if flags.summary else {'lines': describe(words, lines), **summary}))
    else:
        print(*([] if flags.summary else query(words, lines)), *summary_lines(summary), sep='\n')


def _read_alternatives(flags: argparse.Namespace, texts: Sequence[str], weights: Weights) -> list[Alternative]:
    from nplm_jax.cli import nbest

    if flags.format == 'moses':
        require(not flags.score_files, '--score_files', flags.score_files, 'belongs to --format=kaldi')
        return nbest.parse(texts, None if flags.tune else len(weights.scores))
    files = [expand('--score_files', name) for name in flags.score_files.split(',') if name]
    allowed = f'must be as many as --score_files, {len(files)}'
    require(bool(flags.tune) or len(weights.scores) == len(files), '--score_weights', flags.score_weights, allowed)
    return nbest.parse_kaldi(texts, files)


def _tune(
    flags: argparse.Namespace,
    alternatives: Sequence[Alternative],
    log10_p: Sequence[float],
    references: Sequence[Sequence[str]],
) -> None:
    """Prints tuned weights, and on stderr what they gain."""
    from nplm_jax.cli import nbest
    from nplm_jax.inference.reranking import MEASURES

    weights, errors = nbest.tune(alternatives, log10_p, references, flags.measure)
    if flags.json:
        print(to_json({**dataclasses.asdict(weights), 'measure': flags.measure, 'errors': dict(errors)}))
        return
    texts = ', '.join(f'{error:.4f} {choice}' for choice, error in errors)
    print(f'{MEASURES[flags.measure].name}: {texts}', file=sys.stderr)
    print(weights.flags())


def score_texts(
    models: LoadedModels,
    texts: Sequence[str],
    kind: str,
    stream: bool = False,
    end: bool = False,
    model: OpenVocabulary | None = None,
) -> tuple[list[list[str]], Sequence[Line]]:
    """Returns the words of each line and their scores, and names on stderr the words that are read as <rare>.

    Args:
        models: The models, of which the mixture scores.
        texts: The lines.
        kind: How they are cut into words, see `WordCutter`.
        stream: Whether they are one stream.
        end: Whether the end of each line is scored too.
        model: The mixture with the spelling of unknown words, which then scores in its place.

    Raises:
        BadInput: No line has a word, or `end` is set and the corpus has no marks.
    """
    from nplm_jax.inference import scoring

    words = models.read_lines(texts, kind) if model is None else models.tokenize_lines(texts, kind)
    if not any(words):
        raise BadInput('stdin: holds no words')
    if end:
        require(
            bool(models.line_start.prefix), '--end', True, "the run's corpus has no paragraph marks, which end lines"
        )
        mark = models.vocabulary.decode(models.line_start.prefix)
        words = [line_words + mark for line_words in words]
    if model is not None:
        return words, scoring.score_words(model, words, models.line_start, stream)
    encoded = [models.vocabulary.encode(line_words) for line_words in words]
    return words, scoring.score(models.mixture, encoded, models.line_start, stream)


def query(words: Sequence[Sequence[str]], lines: Sequence[Line]) -> list[str]:
    """Returns the lines that KenLM's query would print for the lines of a text."""
    output = []
    for line_words, line in zip(words, lines):
        columns = zip(line_words, line.ids_T.tolist(), line.lengths_T.tolist(), line.log10_p_T.tolist())
        scores = ''.join(f'{word}={i} {length} {p:.7g}\t' for word, i, length, p in columns)
        output.append(f'{scores}Total: {line.log10_p_T.sum():.8g} OOV: {int((line.ids_T == 0).sum())}')
    return output


def describe(words: Sequence[Sequence[str]], lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns what `query` prints, for JSON."""
    return [
        {
            'words': list(line_words),
            'ids': line.ids_T.tolist(),
            'lengths': line.lengths_T.tolist(),
            'log10_p': line.log10_p_T.tolist(),
            'total': float(line.log10_p_T.sum()),
        }
        for line_words, line in zip(words, lines)
    ]


def summarize(words: Sequence[Sequence[str]], lines: Sequence[Line], with_spelling: bool) -> dict[str, Any]:
    """Returns the perplexities and counts of a text; of scores with the spelling also the bits per character."""
    from nplm_jax.inference import scoring

    total = scoring.total(lines)
    return {
        'perplexity': total.perplexity,
        'perplexity_without_oovs': total.perplexity_known,
        'oovs': total.oovs,
        'oov_rate': total.oovs / total.tokens,
        'tokens': total.tokens,
        **({'bits_per_character': _bits_per_character(words, total)} if with_spelling else {}),
    }


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Returns the last lines of the output: those of KenLM's query and the OOV rate."""
    names = {
        'perplexity': ('Perplexity including OOVs', '.6f'),
        'perplexity_without_oovs': ('Perplexity excluding OOVs', '.6f'),
        'oovs': ('OOVs', 'd'),
        'oov_rate': ('OOV rate', '.2%'),
        'tokens': ('Tokens', 'd'),
        'bits_per_character': ('Bits per character', '.6f'),
    }
    return [f'{names[key][0]}:\t{value:{names[key][1]}}' for key, value in summary.items()]


def _bits_per_character(words: Sequence[Sequence[str]], total: Totals) -> float:
    from nplm_jax.inference.scoring import LOG_10
    from nplm_jax.models.open_vocabulary import bits_per_character, count_characters

    return bits_per_character(total.log10_p * LOG_10, sum(map(count_characters, words)))


def read_stdin() -> str:
    """Returns the text on stdin. Raises BadInput if it is too large, not UTF-8 or without words."""
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadInput(f'stdin: more than {_MAX_BYTES:,} bytes; cut it into parts')
    text = decode('stdin', data)
    if not text.strip():
        raise BadInput('stdin: holds no words')
    return text.removesuffix('\n')
