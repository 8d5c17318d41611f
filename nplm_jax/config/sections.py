"""Config sections that do not belong to a component: `corpus.*`, `train.*`, `eval.*`, `parallel.*`, `paper.*`."""

import dataclasses
import math
from typing import Annotated, Any, Literal

from nplm_jax.config.checked_fields import Options
from nplm_jax.config.component import Check, Count, CountOrZero, NonNegative, Share, between, chosen, key
from nplm_jax.config.keys import Unknown
from nplm_jax.config.registry import base_class
from nplm_jax.utils.errors import require

SplitSize = Annotated[
    float,
    Check(
        'must be a fraction of the stream (between 0 and 1) or a number of words (at least 2)',
        lambda value: 0 < value < 1 or (value >= 2 and math.isfinite(value)),
    ),
]
SplitSizeOrRest = Annotated[
    float,
    Check(
        'must be 0 (the rest of the stream), a fraction of the stream (below 1) or a number of words (at least 2)',
        lambda value: 0 <= value < 1 or (value >= 2 and math.isfinite(value)),
    ),
]
NumDevices = Annotated[
    int, Check('must be -1 (all remaining devices) or at least 1', lambda value: value == -1 or value >= 1)
]
MaxVocabulary = Annotated[int, Check('must be 0 (no limit) or at least 3', lambda value: value == 0 or value >= 3)]
Name = Annotated[
    str,
    Check(
        'must be a printable name without a slash',
        lambda value: value not in ('', '.', '..') and '/' not in value and value.isprintable(),
    ),
]


def _counts_words(corpus: Any, settings: Any) -> bool:
    """Returns whether the vocabulary comes from counts of the corpus rather than from the tokenizer."""
    if isinstance(corpus.tokenizer, Unknown):
        return 'corpus.min_count' in corpus.tokenizer.others
    return type(corpus.tokenizer).tokens is base_class('corpus.tokens').tokens


def _has_paragraphs(corpus: Any, settings: Any) -> bool:
    """Returns whether paragraph marks separate paragraphs, because no token contains the end of a paragraph."""
    if isinstance(corpus.tokenizer, Unknown):
        return 'corpus.paragraphs' in corpus.tokenizer.others
    return not corpus.tokenizer.is_lossless


def _has_row_per_word(section: Any, settings: Any) -> bool:
    """Returns whether the output layer has one row of parameters per word."""
    if isinstance(settings.output, Unknown):
        return 'train.calibrate' in settings.output.others
    return bool(settings.output.takes_new_words)


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """`corpus.*`: the text, its tokenization, vocabulary and splits."""

    name: str = key(
        'brown', 'corpus: brown | gutenberg | ap_news | wikitext2 | wikitext103 | text | sentences | an import path'
    )
    path: str = key(
        '', 'text: a UTF-8 file, or a folder of files, read in alphabetical order; ap_news, wikitext2: a folder'
    )
    valid_path: str = key(
        '', 'text, ap_news: a validation file or folder; corpus.train, valid and test are then ignored'
    )
    test_path: str = key('', 'text, ap_news: a test file or folder')
    column: str = key('text', 'text column of JSON lines, Parquet files and Hugging Face datasets')
    tokenizer: Any = chosen('corpus.tokens')
    paragraphs: Literal['auto', 'blank_lines', 'lines', 'eos'] = key(
        'auto',
        'paragraph separator. text, ap_news: blank_lines | lines (each line is a paragraph, as in a file with one '
        'sentence per line) | auto (lines if the text has no blank lines and its lines are clearly sentences, '
        'otherwise blank_lines). wikitext2, wikitext103: auto (<text> before each article, <p> before each non-blank '
        'line) | eos (<p> after each line, including blank lines, like the <eos> of published perplexities)',
        _has_paragraphs,
    )
    context: Literal['auto', 'stream', 'line'] = key(
        'auto',
        'extent of contexts: stream (contexts cross paragraph boundaries) | line (contexts stay within a paragraph, '
        'and its end is predicted, as in lmplz and query; only for networks, backoff, kneser_ney and '
        'modified_kneser_ney) | auto (line for these count-based models if each line is a paragraph, otherwise stream)',
    )
    min_count: Count = key(1, 'minimum count; words with a lower count become <rare>; the paper: 4', _counts_words)
    max_vocabulary: MaxVocabulary = key(
        0,
        'maximum vocabulary size |V|, including <rare>; 0: no limit; the paper: 16,383 on Brown, 17,964 on AP News',
        _counts_words,
    )
    count_over: Literal['all', 'train'] = key(
        'all',
        "words that are counted for the vocabulary: all | train; the paper's figures are consistent with all",
        _counts_words,
    )
    train: SplitSize = key(
        0.8, 'training set size: a fraction of the stream if below 1, otherwise words; the paper on Brown: 800,000'
    )
    valid: SplitSize = key(
        0.1, 'validation set size, in the unit of corpus.train; follows the training set; the paper on Brown: 200,000'
    )
    test: SplitSizeOrRest = key(
        0.0,
        'test set size, in the unit of corpus.train; follows the validation set; 0: the rest of the stream, as in the '
        'paper',
    )
    words: CountOrZero = key(
        0,
        'number of words to use from the start of the text, with unchanged proportions of the training, validation and '
        'test sets; if each set has its own text, words are taken from the start of each; 0: all',
    )
    options: Options = Options()

    def __post_init__(self) -> None:
        if getattr(self.tokenizer, 'name', '') and not isinstance(self.tokenizer, Unknown):
            # words, whitespace and lmplz share a class; `kind` tells them apart
            object.__setattr__(self, 'tokenizer', dataclasses.replace(self.tokenizer, kind=self.tokenizer.name))


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: length of training, batches, validation, checkpoints and logs."""

    batch_size: Count = key(128, 'number of words per update; the paper: 1')
    accumulate: Count = key(
        1,
        'number of micro-batches per update, processed sequentially to save memory; the update is unchanged',
    )
    average: Annotated[float, between(0, 1)] = key(
        0.0,
        'decay per update of a running average of the parameters, which replaces them in the trained model; the '
        'average starts as a plain mean; 1: a plain mean throughout; 0: no average',
    )
    average_start: Share = key(0.0, 'fraction of all updates after which averaging starts; above 0: a tail average')
    suffix_smoothing: NonNegative = key(
        0.0,
        'after training, mix each row of C, U and W with the mean row of its suffix; the value is the training count '
        'at which both have the same weight; rows are smoothed before train.calibrate, unless this raises the '
        'validation perplexity (training/suffix_smoothing.py); 0: no smoothing, as in the paper',
        _has_row_per_word,
    )
    calibrate: bool = key(
        False,
        'after training, fit the output bias b to the validation words, with one offset for each group of words with '
        'similar training counts (training/calibration.py); the paper: False',
        _has_row_per_word,
    )
    unigram_bias: bool = key(
        True, 'initialize b with the log frequencies of the training words; unspecified in the paper'
    )
    epochs: Count = key(8, 'maximum number of passes over the training words; the paper on Brown: 10 to 20')
    max_steps: CountOrZero = key(
        0, 'maximum number of updates; training may then end within a pass; 0: limited by train.epochs only'
    )
    patience: Count = key(2, 'number of validations without a better perplexity after which training stops early')
    evaluate_every: CountOrZero = key(0, 'number of updates between validations; 0: one validation per epoch')
    valid_words: CountOrZero = key(
        0,
        'number of evenly spaced validation words to use during training; the final evaluation uses eval.words; 0: as '
        'in eval.words',
    )
    sample_words: CountOrZero = key(
        0,
        'number of tokens to sample from the model and print at each validation during training; 0: none',
    )
    checkpoint_every: Count = key(2000, 'number of updates between checkpoints')
    log_every: Count = key(250, 'number of updates between lines of metrics.jsonl')
    steps_per_execution: Count = key(
        50, 'number of updates per call of the compiled program, between validations, checkpoints and logs'
    )
    input: Literal['auto', 'device', 'mapped'] = key(
        'auto', 'training words: device (in device memory) | mapped (read from disk) | auto (mapped above 2**25 words)'
    )


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """`eval.*`: evaluation of the finished model."""

    train_words: CountOrZero = key(20_000, 'number of evenly spaced training words for the training perplexity; 0: all')
    words: CountOrZero = key(
        0,
        'number of evenly spaced words for the validation and test perplexities; 0: all words, which is exact',
    )


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: parallel training on several devices (section 3). These keys do not affect results."""

    data: NumDevices = key(1, 'number of devices along the batch axis (section 3.1); -1: all remaining devices')
    model: NumDevices = key(
        1,
        'number of devices along the vocabulary axis of the output layer (section 3.2); -1: all remaining devices. If '
        'output.kind is not full, these devices only divide the memory of the output rows, and the batch is divided '
        'over all data * model devices',
    )
    mode: Literal['shard_map', 'pmap'] = key(
        'shard_map', 'JAX transformation: shard_map | pmap (shards only the batch)'
    )

    def __post_init__(self) -> None:
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be at least 1 if parallel.data=-1')


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities in the paper's table; 0 if the table has none."""

    row: str = key('', "name of the row in the paper's table")
    train: NonNegative = key(0.0, 'perplexity of the training words')
    valid: NonNegative = key(0.0, 'perplexity of the validation words')
    test: NonNegative = key(0.0, 'perplexity of the test words')
