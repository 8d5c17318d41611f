"""Config sections that are not part of a component: `corpus.*`, `train.*`, `eval.*`, `parallel.*`, `paper.*`."""

import dataclasses
from typing import Annotated, Any, Literal

from nplm_jax.config.checked_fields import Options
from nplm_jax.config.component import Check, Count, CountOrZero, NonNegative, Share, between, chosen, key
from nplm_jax.config.keys import Unknown
from nplm_jax.config.registry import base_class
from nplm_jax.utils.errors import require

SplitSize = Annotated[
    float,
    Check(
        'must be a fraction of the stream (between 0 and 1) or a whole number of words (at least 2)',
        lambda value: 0 < value < 1 or (value >= 2 and float(value).is_integer()),
    ),
]
SplitSizeOrRest = Annotated[
    float,
    Check(
        'must be 0 (the rest of the stream), a fraction (between 0 and 1) or a whole number of words (at least 2)',
        lambda value: 0 <= value < 1 or (value >= 2 and float(value).is_integer()),
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
    """Returns whether the vocabulary comes from word counts in the corpus rather than from the tokenizer."""
    if isinstance(corpus.tokenizer, Unknown):
        return 'corpus.min_count' in corpus.tokenizer.others
    return type(corpus.tokenizer).tokens is base_class('corpus.tokens').tokens


def _has_paragraphs(corpus: Any, settings: Any) -> bool:
    """Returns whether the token <p> separates paragraphs. For lossless tokenizers, ordinary newline tokens do."""
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
        'brown',
        'corpus: brown | gutenberg | ap_news | wikitext2 | wikitext103 | text | sentences | import path of a plug-in',
    )
    path: str = key(
        '',
        'for text: a UTF-8 file, or a folder whose files are read in alphabetical order; for ap_news, wikitext2 and '
        'wikitext103: the folder that contains the corpus; for wikitext103, the archive is also allowed',
    )
    valid_path: str = key(
        '',
        'for text and ap_news: a validation file or folder; ap_news then ignores corpus.train, corpus.valid and '
        'corpus.test, and text requires the default values of these keys',
    )
    test_path: str = key('', 'for text and ap_news: a test file or folder')
    column: str = key(
        'text', 'column that contains the text in JSON Lines files, Parquet files and Hugging Face datasets'
    )
    tokenizer: Any = chosen('corpus.tokens')
    paragraphs: Literal['auto', 'blank_lines', 'lines', 'eos'] = key(
        'auto',
        'how the text is divided into paragraphs. For text and ap_news: blank_lines | lines (each line is a paragraph, '
        'as in a file with one sentence per line) | auto (lines if the text has no blank lines and its lines are '
        'clearly sentences, otherwise blank_lines). For wikitext2 and wikitext103: auto (<text> before each article, '
        'and <p> before each non-blank line) | eos (<p> after each line, including blank lines, as with <eos> in '
        'published results)',
        _has_paragraphs,
    )
    context: Literal['auto', 'stream', 'line'] = key(
        'auto',
        'extent of contexts: stream (contexts cross paragraph boundaries) | line (contexts stay within a paragraph, '
        "and the end of each paragraph is predicted, as in KenLM's lmplz and query; supported only by networks, "
        'backoff, kneser_ney and modified_kneser_ney) | auto (line for backoff, kneser_ney and modified_kneser_ney if '
        'each line is a paragraph, otherwise stream)',
    )
    min_count: Count = key(
        1, 'minimum count of a word; less frequent words are replaced with <rare>; the paper uses 4', _counts_words
    )
    max_vocabulary: MaxVocabulary = key(
        0,
        'maximum vocabulary size, including <rare>; 0 means no limit; the paper uses 16,383 (Brown), 17,964 (AP News)',
        _counts_words,
    )
    count_over: Literal['all', 'train'] = key(
        'all',
        'words counted for the vocabulary: all (the whole corpus, apparently as in the paper) | train (training set)',
        _counts_words,
    )
    train: SplitSize = key(
        0.8,
        'size of the training set: a fraction of the stream if below 1, otherwise a number of words; the paper uses '
        '800,000 words on Brown',
    )
    valid: SplitSize = key(
        0.1,
        'size of the validation set, which follows the training set: a fraction of the stream if below 1, otherwise a '
        'number of words; the paper uses 200,000 words on Brown',
    )
    test: SplitSizeOrRest = key(
        0.0,
        'size of the test set, which follows the validation set: a fraction of the stream if below 1, otherwise a '
        'number of words; 0 means the rest of the stream, as in the paper',
    )
    words: CountOrZero = key(
        0,
        'number of words to use from the start of the text; the proportions of the training, validation and test sets '
        'do not change; if each set has its own text, words are taken from the start of each text; 0 means all words',
    )
    options: Options = Options()

    def __post_init__(self) -> None:
        if getattr(self.tokenizer, 'name', '') and not isinstance(self.tokenizer, Unknown):
            # words, whitespace and lmplz share a class and are distinguished by `kind`
            object.__setattr__(self, 'tokenizer', dataclasses.replace(self.tokenizer, kind=self.tokenizer.name))


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: length of training, batches, validation, checkpoints and logs."""

    batch_size: Count = key(128, 'number of words per update; the paper uses 1')
    accumulate: Count = key(
        1, 'number of microbatches per batch; processing them one by one saves memory without changing the update'
    )
    average: Annotated[float, between(0, 1)] = key(
        0.0,
        'decay rate per update of the running average of the parameters; the trained model uses this average, which '
        'starts as a plain mean; 1 means a plain mean throughout; 0 means no average',
    )
    average_start: Share = key(0.0, 'fraction of all updates after which averaging starts')
    affixes: bool = key(
        False,
        'during training, add to the rows of each word in C, U and W (two_level and tree: C only) rows that it shares '
        'with all words that have the same prefix or suffix, so that rare words learn from other words; the trained '
        'network contains only the sums (training/affixes.py); the paper does not use affixes',
    )
    calibrate: bool = key(
        False,
        'after training, fit the output bias b to the validation words, with one offset for each group of words with '
        'similar training counts (training/calibration.py); the paper does not calibrate',
        _has_row_per_word,
    )
    unigram_bias: bool = key(
        True, 'initialize b with the log frequencies of the training words; the paper does not specify this'
    )
    epochs: Count = key(8, 'maximum number of passes over the training words; the paper uses 10 to 20 on Brown')
    max_steps: CountOrZero = key(
        0,
        'maximum number of updates; training may then end within an epoch; 0 means no limit other than train.epochs',
    )
    patience: Count = key(2, 'number of consecutive validations without improvement after which training stops early')
    evaluate_every: CountOrZero = key(0, 'number of updates between validations; 0 means one validation per epoch')
    valid_words: CountOrZero = key(
        0, 'number of evenly spaced validation words used during training; 0 means the value of eval.words'
    )
    sample_words: CountOrZero = key(
        0, 'number of tokens to sample from the model and print at each validation during training; 0 means none'
    )
    checkpoint_every: Count = key(2000, 'number of updates between checkpoints')
    log_every: Count = key(250, 'number of updates between entries in metrics.jsonl')
    steps_per_execution: Count = key(
        50, 'number of updates per call to the compiled program; validations, checkpoints and logs occur between calls'
    )
    input: Literal['auto', 'device', 'mapped'] = key(
        'auto',
        'where to store the training words: device (device memory) | mapped (memory-mapped file) | auto (mapped if '
        'there are more than 2**25 words, otherwise device)',
    )


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """`eval.*`: evaluation of the finished model."""

    train_words: CountOrZero = key(
        20_000, 'number of evenly spaced training words used to compute the training perplexity; 0 means all'
    )
    words: CountOrZero = key(
        0, 'number of evenly spaced words for each of the validation and test perplexities; 0 means all words (exact)'
    )


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: parallel training on several devices (section 3). These keys do not affect results."""

    data: NumDevices = key(1, 'number of devices along the batch axis (section 3.1); -1 means all remaining devices')
    model: NumDevices = key(
        1,
        'number of devices along the vocabulary axis of the output layer (section 3.2); -1 means all remaining '
        'devices. If output.kind is not full, these devices share only the storage of the output rows, and the batch '
        'is divided among all parallel.data * parallel.model devices',
    )
    mode: Literal['shard_map', 'pmap'] = key(
        'shard_map', 'JAX transformation for parallel training: shard_map | pmap (divides only the batch)'
    )

    def __post_init__(self) -> None:
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be at least 1 if parallel.data=-1')


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities that the paper reports for this model, or 0 where its table has no value."""

    row: str = key('', "name of the row in the paper's table")
    train: NonNegative = key(0.0, 'perplexity on the training words')
    valid: NonNegative = key(0.0, 'perplexity on the validation words')
    test: NonNegative = key(0.0, 'perplexity on the test words')
