r"""Scores a text word by word and prints the same columns as KenLM's `query`.

    nplm score runs/NAME < text
    nplm score runs/NAME --summary < text
    nplm score runs/NAME --open < text
    nplm score runs/NAME --format=query < text
    nplm score runs/NAME --format=sota_lm < text
    nplm score lm.arpa --end < text

Reads at most 256 MiB of text from stdin. For each line, prints one field `word=id length log10p` per word, separated by
tabs, followed by the total and the number of words outside the vocabulary (OOV). Unknown words have id 0 and are scored
as <rare>. `length` is the length of the n-gram that predicts the word; back-off models use the longest n-gram that they
contain. The final lines give the perplexity of the text and the OOV rate. If no word is unknown, these lines also give
the perplexity per word and the bits per character and per byte, which are comparable between models with different
tokens that read the text in the same case. --summary prints only the final lines. If several runs are given, their
mixture is scored, and --weights sets its weights. Use `nplm rescore` to re-rank n-best lists.

RUN may also be an ARPA file, optionally compressed. The scores are identical to KenLM's. As in KenLM, a log10
probability of -99 is an ordinary value, and <unk> has a log10 probability of -100 if the file lacks it. With --end, the
end of a line is scored as `</s>`.

Text is split into words in the same way as the corpus of the first run. Punctuation is also split off if that corpus,
like Brown, was already tokenized and the vocabulary requires it. Use --tokens=whitespace for tokenized text. <s>, </s>,
<p> and <text> are skipped like whitespace. <unk> and <rare> are treated as unknown words. Windows line ends are read as
newlines unless the training text has them.

--open also scores words outside the vocabulary. The probability of an unknown word is P(<rare>) times the probability
of its spelling under the model trained by `nplm spell RUN`. Characters and bytes are counted in the given text,
regardless of how it is tokenized; line ends are counted if they are scored. If the corpus is Chinese, Japanese or Thai
without spaces between words, and the tokens are pieces, characters or bytes, the spaces in a segmented text are removed
before the text is scored and counted.

By default, each line is scored independently. --stream scores all lines as one stream without additional marks, as in
the evaluation of a run on its own corpus. --end also scores the end of each line as the paragraph mark <p>, which must
occur in the run's corpus. If newlines are tokens (corpus.tokens=pieces, characters or bytes), both --end and --stream
score the newlines. In the output for these runs, a space is printed as `␣` and a newline as `\n`.

--format=query prints the format of KenLM's `query` for programs that parse it. Text is split at whitespace, newlines
are scored as `</s>`, numbers and sums are float32, and the summary has the four lines of `query`. The last digit of a
number may differ, because probabilities are stored as natural logarithms. Word ids refer to the run's vocabulary, as in
the ARPA file written by `nplm export`.

--format=sota_lm prints the probability of each word on a separate line, which is the input format for mixtures in
DavidHerel/sota_lm. The text is split at whitespace into one stream. The end of each line is scored as `<p>`, which
corresponds to `</s>` in that format. The first word is read, but its probability is not printed. The mean of -ln P is
the natural logarithm of the perplexity.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nplm_jax.cli import scheduler
from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.dataset import TextSize
from nplm_jax.data.encoding import measure
from nplm_jax.data.stream import UNKNOWN
from nplm_jax.data.tokenizers.token_text import keeps_letters
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.wikitext2 import mark_rare
from nplm_jax.data.word_stream import WordStream
from nplm_jax.inference import scoring
from nplm_jax.inference.perplexity import per_unit
from nplm_jax.inference.scoring import Line
from nplm_jax.reporting.text import to_json
from nplm_jax.runs.command_models import LoadedModels, check_models, load_models
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.untrusted import decode

_MAX_BYTES = 2**28  # maximum size of stdin, which may be endless


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_switch('--stream', 'score all lines as one stream instead of independently')
    parser.add_switch('--summary', 'print only the perplexity and the counts of the whole text')
    parser.add_switch('--open', 'score unknown words with the spelling model trained by `nplm spell RUN`')
    parser.add_switch('--end', 'also score the end of each line')
    form = (
        "output format: kenlm (the columns of KenLM's query, then the summary of nplm) | query (exactly the format of "
        "KenLM's query) | sota_lm (one probability per word and line end)"
    )
    parser.add_argument('--format', default='kenlm', choices=('kenlm', 'query', 'sota_lm'), help=form)
    parser.add_scheduler()
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Scores the text on stdin and prints the scores."""
    is_sota_lm, is_query = flags.format == 'sota_lm', flags.format == 'query'
    refused = {'sota_lm': ('json', 'summary', 'open'), 'query': ('json', 'stream', 'open')}
    for name in refused.get(flags.format, ()):
        require(not getattr(flags, name), f'--{name}', True, f'cannot be used with --format={flags.format}')
    if is_sota_lm or is_query:
        flags.stream, flags.end, flags.tokens = is_sota_lm, True, flags.tokens or 'whitespace'

    check_models(flags.runs)  # report errors before waiting for stdin
    with scheduler.use(flags.scheduler):
        text = read_stdin()
        models = load_models(flags.runs, flags.weights)
        texts = models.split_lines(text)
        if is_sota_lm:  # replaces the symbol for unknown words in that format with <rare>
            texts = list(map(mark_rare, texts))
        has_marks = models.line_start.prefix and not models.vocabulary.tokenizer.is_lossless
        problem = "requires the paragraph mark <p>, which is not in the run's vocabulary"
        require(bool(has_marks) or not (is_sota_lm or is_query), '--format', flags.format, problem)
        if flags.scheduler and flags.stream and models.mixture.n is None:
            print(
                '--stream: the text is scored on this machine, because a stateful model cannot score it in parts',
                file=sys.stderr,
            )
        models = models.on_cluster() if flags.scheduler else models
        texts, words, lines = score_texts(models, texts, flags)
    if is_sota_lm:
        print_probabilities(lines)
        return
    if is_query:
        print_query(words, lines, flags.summary)
        return
    tokenizer = models.vocabulary.tokenizer
    mark = b''.join(map(tokenizer.utf8, models.vocabulary.decode(models.line_start.end)))
    end = mark if flags.end else b'\n' if flags.stream and tokenizer.is_lossless else b''
    summary = summarize(tokenizer, texts, words, lines, end.decode(), flags.open)
    shown = map(models.vocabulary.show, words)
    described = [] if flags.summary else list(map(describe, shown, lines))
    if flags.json:
        values = {key: value for key, value, *_ in summary}
        print(to_json(values if flags.summary else {'lines': described, **values}))
        return
    for line in described:
        print(query(line))
    for _, value, name, form in summary:
        print(f'{name}:\t{value:{form}}')


def score_texts(
    models: LoadedModels, texts: Sequence[str], flags: argparse.Namespace
) -> tuple[list[str], list[list[str]], Sequence[Line]]:
    """Scores the lines of a text. Returns the lines, their words and their scores.

    In the returned lines, the spaces that `unspaced_scripts.join` removes are missing. Words that are read as <rare>
    are listed on stderr.

    Args:
        models: The models, whose mixture scores the text.
        texts: The lines of the text.
        flags: The command's flags.

    Raises:
        BadInput: The lines contain no words, or --end is given and the corpus has no paragraph marks.
    """
    joined = unspaced_scripts.join(models.vocabulary, texts)
    if flags.stream and models.vocabulary.tokenizer.is_lossless:
        words = models.read_stream(joined, flags.tokens)
    else:
        words = (models.tokenize_lines if flags.open else models.read_lines)(joined, flags.tokens)
    if not any(words):
        raise BadInput('stdin', 'contains no words')
    if flags.end:
        is_allowed = not (flags.stream and models.vocabulary.tokenizer.is_lossless)
        require(is_allowed, '--end', True, 'cannot be used with --stream, because newlines are tokens of the stream')
        mark = models.vocabulary.decode(models.line_start.end)
        require(bool(mark), '--end', True, "requires paragraph marks (<p>) or newlines in the run's training text")
        words = [line_words + mark for line_words in words]
    if flags.open:
        spelled = models.with_spelling()
        return joined, words, scoring.score_words(spelled, words, models.line_start, flags.stream)
    encoded = [models.vocabulary.encode(line_words) for line_words in words]
    return joined, words, scoring.score(models.mixture, encoded, models.line_start, flags.stream)


def describe(words: Iterable[str], line: Line) -> dict[str, Any]:
    """Returns the words and scores of a line as JSON-serializable values."""
    return {
        'words': list(words),
        'ids': line.ids_T.tolist(),
        'lengths': line.lengths_T.tolist(),
        'log10_p': line.log10_p_T.tolist(),
        'total': float(line.log10_p_T.sum()),
    }


def query(line: dict[str, Any]) -> str:
    """Converts the result of `describe` to the format of KenLM's query."""
    log10_p = (f'{p:.7g}' for p in line['log10_p'])
    return format_line(line['words'], line['ids'], line['lengths'], log10_p, f'{line["total"]:.8g}')


def format_line(words: Iterable[str], ids: list[int], lengths: list[int], log10_p: Iterable[str], total: str) -> str:
    """Formats the words and scores of a line in the format of KenLM's query."""
    scores = ''.join(f'{word}={i} {length} {p}\t' for word, i, length, p in zip(words, ids, lengths, log10_p))
    return f'{scores}Total: {total} OOV: {ids.count(0)}'


def print_query(words: Iterable[Sequence[str]], lines: Sequence[Line], is_summary: bool) -> None:
    """Prints the output of KenLM's query. Numbers and sums are float32, and printed with as few digits as possible.

    Args:
        words: The words of each line and its end mark.
        lines: The scores of the lines.
        is_summary: Whether to print only the summary.
    """

    def shortest(number: np.float32) -> str:
        return np.format_float_positional(number, trim='-')

    for line_words, line in zip(words, lines) if not is_summary else ():
        log10_p_T = line.log10_p_T.astype(np.float32)
        named = [*line_words[:-1], '</s>']
        line_total = shortest(np.cumsum(log10_p_T, dtype=np.float32)[-1])
        ids, lengths = line.ids_T.tolist(), line.lengths_T.tolist()
        print(format_line(named, ids, lengths, map(shortest, log10_p_T), line_total))
    total = scoring.total(lines)
    print(f'Perplexity including OOVs:\t{total.perplexity!r}')
    print(f'Perplexity excluding OOVs:\t{total.perplexity_known!r}\nOOVs:\t{total.oovs}\nTokens:\t{total.tokens}')


def print_probabilities(lines: Iterable[Line]) -> None:
    """Prints the probability of each word in a stream except the first, in the format of DavidHerel/sota_lm."""
    log10_p = itertools.chain.from_iterable(line.log10_p_T.tolist() for line in lines)
    for value in itertools.islice(log10_p, 1, None):
        print(f'{10**value:.7g}')


def summarize(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    words: Sequence[Sequence[str]],
    lines: Sequence[Line],
    end: str,
    with_spelling: bool,
) -> list[tuple[str, float, str, str]]:
    """Returns the perplexities and counts of a text.

    The numbers per word, character and byte are omitted if unknown words are scored as <rare>, or if the text cannot be
    reproduced from its tokens, apart from its case, its punctuation and compatible characters.

    Args:
        tokenizer: The tokenizer of the models.
        texts: The lines of the text.
        words: The tokens of each line.
        lines: The scores of the lines.
        end: The text that ends each line if line ends are scored. Otherwise, ''.
        with_spelling: Whether unknown words are scored by their spelling.

    Returns:
        One tuple per number: its key in JSON, its value, its label in the printed summary, and its format.
    """
    total = scoring.total(lines)
    rows: list[tuple[str, float, str, str]] = [
        ('perplexity', total.perplexity, 'Perplexity including OOVs', '.6f'),
        ('perplexity_without_oovs', total.perplexity_known, 'Perplexity excluding OOVs', '.6f'),
        ('oovs', total.oovs, 'OOVs', 'd'),
        ('oov_rate', total.oovs / total.tokens, 'OOV rate', '.2%'),
        ('tokens', total.tokens, 'Tokens', 'd'),
    ]
    symbols = {word for line_words in words for word in line_words if word in UNKNOWN} if with_spelling else ()
    problem = f'{", ".join(sorted(symbols))} cannot be spelled' if symbols else ''
    is_exact = keeps_letters(tokenizer, zip(texts, words))
    if not (is_exact or keeps_letters(tokenizer, zip(texts, words), any_form=True)):
        problem = 'the tokens do not reproduce the text'
    if problem:
        print(f'results per word, character and byte are omitted, because {problem}', file=sys.stderr)
    elif with_spelling or not total.oovs:
        if not is_exact:
            note = 'results per word, character and byte refer to the text as the models read it, such as in lower case'
            print(note, file=sys.stderr)
        types, type_ids_L = WordStream.from_words(word for line_words in words for word in line_words)
        stops = np.cumsum([len(line_words) for line_words in words])
        num_words = sum(size.words for size in measure(tokenizer, types, np.split(type_ids_L, stops[:-1])))
        ends = len(texts) * len(end)  # line ends are ASCII
        sizes = (sum(map(len, texts)) + ends, sum(len(text.encode()) for text in texts) + ends)
        size = TextSize(total.tokens, num_words, *sizes)
        numbers = per_unit(-total.log10_p * scoring.LOG_10, size)
        numbers = {key: number for key, number in numbers.items() if not math.isnan(number)}
        rows += [(key, number, key.replace('_', ' ').capitalize(), '.6f') for key, number in numbers.items()]
    return rows


def read_stdin() -> str:
    """Returns the text on stdin. Raises BadInput if it is too large, is not valid UTF-8, or contains no words."""
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadInput('stdin', f'must not exceed {_MAX_BYTES // 2**20} MiB; split the text at newlines')
    text = decode('stdin', data)
    if not text.strip():
        raise BadInput('stdin', 'contains no words')
    return text.removesuffix('\n')
