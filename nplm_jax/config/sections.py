"""Sections of the config that belong to no component: `corpus.*`, `train.*`, `eval.*`, `parallel.*`, `paper.*`."""

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
        'must be above 0 and below 1, a fraction of the stream, or 2 or more words',
        lambda value: 0 < value < 1 or (value >= 2 and math.isfinite(value)),
    ),
]
SplitSizeOrRest = Annotated[
    float,
    Check(
        'must be 0 (the rest of the stream), above 0 and below 1, a fraction of the stream, or 2 or more words',
        lambda value: 0 <= value < 1 or (value >= 2 and math.isfinite(value)),
    ),
]
NumDevices = Annotated[
    int, Check('must be -1 (all remaining devices) or 1 or more', lambda value: value == -1 or value >= 1)
]
MaxVocabulary = Annotated[int, Check('must be 0 (no limit) or 3 or more', lambda value: value == 0 or value >= 3)]
Name = Annotated[
    str,
    Check(
        'must be a printable name without a slash',
        lambda value: value not in ('', '.', '..') and '/' not in value and value.isprintable(),
    ),
]


def _counts_words(corpus: Any, settings: Any) -> bool:
    """Returns whether the vocabulary is counted in the corpus, and not that of the tokenizer."""
    if isinstance(corpus.tokenizer, Unknown):
        return 'corpus.min_count' in corpus.tokenizer.others
    return type(corpus.tokenizer).tokens is base_class('corpus.tokens').tokens


def _has_row_per_word(section: Any, settings: Any) -> bool:
    """Returns whether the output layer has a row for each word and nothing else."""
    if isinstance(settings.output, Unknown):
        return 'train.calibrate' in settings.output.others
    return bool(settings.output.takes_new_words)


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """`corpus.*`: which text, how it is tokenized, which words are rare, how it is split."""

    name: str = key(
        'brown', 'brown | gutenberg | ap_news | wikitext2 | wikitext103 | text | sentences | an import path'
    )
    path: str = key(
        '', 'text: a UTF-8 file, or a folder whose files are read in order of name; ap_news, wikitext2: a folder'
    )
    valid_path: str = key(
        '', 'text, ap_news: a validation file or folder; corpus.train, valid and test are then not used'
    )
    test_path: str = key('', 'text, ap_news: a test file or folder')
    column: str = key('text', 'of JSON lines, Parquet and Hugging Face datasets: the column with the text')
    tokenizer: Any = chosen('corpus.tokens')
    paragraphs: Literal['auto', 'blank_lines', 'lines', 'eos'] = key(
        'auto',
        'of text, ap_news: what separates paragraphs: blank_lines | lines (each line is a paragraph, as in a file with '
        'one sentence per line) | auto (lines if the text has no blank lines and its lines clearly are sentences, else '
        'blank_lines); of wikitext2, wikitext103: auto (<text> before each article, <p> before each line that is not '
        'blank) | eos (<p> after each line, blank ones too: the <eos> of published perplexities)',
        _counts_words,
    )
    context: Literal['auto', 'stream', 'line'] = key(
        'auto',
        'stream (predictions look across paragraphs) | line (each paragraph is trained on and tested alone, and its '
        'end is predicted, as lmplz and query do; of networks, backoff, kneser_ney and modified_kneser_ney) | auto '
        '(line for these count-based models where each line is a paragraph, else stream)',
    )
    min_count: Count = key(1, 'words with a lower count become <rare>; the paper: 4', _counts_words)
    max_vocabulary: MaxVocabulary = key(
        0, 'largest |V|, <rare> included; 0: no limit; the paper: 16,383 on Brown, 17,964 on AP News', _counts_words
    )
    count_over: Literal['all', 'train'] = key(
        'all',
        "all | train: the words that are counted to decide which are rare; the paper's figures fit all",
        _counts_words,
    )
    train: SplitSize = key(
        0.8, 'training set: a fraction of the stream below 1, else words; the paper on Brown: 800,000'
    )
    valid: SplitSize = key(
        0.1, 'validation set, which follows the training set, in the same unit; the paper on Brown: 200,000'
    )
    test: SplitSizeOrRest = key(
        0.0, 'test set, which follows the validation set, in the same unit; 0: the rest of the stream, as in the paper'
    )
    words: CountOrZero = key(
        0,
        'number of words of the experiment: the first of the text, with the training, validation and test sets in the '
        'proportions that they have in all of it; of a corpus with a text for each set, the first of each; 0: all',
    )
    options: Options = Options()

    def __post_init__(self) -> None:
        if getattr(self.tokenizer, 'name', '') and not isinstance(self.tokenizer, Unknown):
            # words, whitespace and lmplz have one class; a text of other tokens is another one
            object.__setattr__(self, 'tokenizer', dataclasses.replace(self.tokenizer, kind=self.tokenizer.name))


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: how long, in which batches, how often it is validated, saved and logged."""

    batch_size: Count = key(128, 'words per update; the paper: 1')
    accumulate: Count = key(
        1,
        'number of parts of a batch, computed one after another to save memory; the update is that of the whole batch',
    )
    average: Annotated[float, between(0, 1)] = key(
        0.0,
        'decay per update of a running average of the parameters (at first a plain mean; 1: always), which is the '
        'result; 0: none',
    )
    average_start: Share = key(0.0, 'share of all updates after which the average begins; above 0: a tail average')
    suffix_smoothing: NonNegative = key(
        0.0,
        'smooths the rows of C, U and W after training, before train.calibrate, unless this raises the validation '
        'perplexity: the training count at which the row of a word weighs as much as the mean row of words with its '
        'ending (training/suffix_smoothing.py); 0: no smoothing, as in the paper',
        _has_row_per_word,
    )
    calibrate: bool = key(
        False,
        'whether to fit the output bias b to validation words after training, by one offset for all words of '
        'similar training count (training/calibration.py). The paper: no',
        _has_row_per_word,
    )
    unigram_bias: bool = key(
        True, 'initialise b with the log-frequencies of the training words; the paper does not say'
    )
    epochs: Count = key(8, 'largest number of passes over the training words; the paper on Brown: 10 to 20')
    max_steps: CountOrZero = key(
        0, 'largest number of updates; the run may then end within a pass; 0: no limit but train.epochs'
    )
    patience: Count = key(2, 'number of validations without a better perplexity after which training stops')
    evaluate_every: CountOrZero = key(0, 'updates between validations, 0: once an epoch')
    valid_words: CountOrZero = key(
        0,
        'number of validation words, spread evenly, that a validation during training predicts; the finished model is '
        'evaluated on those of eval.words; 0: the same',
    )
    sample_words: CountOrZero = key(
        0,
        'number of words (or of pieces, characters or bytes) of a text that each validation during training draws from '
        'the model and shows; 0: none',
    )
    checkpoint_every: Count = key(2000, 'updates between checkpoints')
    log_every: Count = key(250, 'updates between lines of metrics.jsonl')
    steps_per_execution: Count = key(
        50, 'updates in one call of the compiled program; validations, checkpoints and logs wait for its end'
    )
    input: Literal['auto', 'device', 'mapped'] = key(
        'auto', 'device: all words on the device | mapped: read from the disk; auto: mapped above 2**25 words'
    )


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """`eval.*`: how the finished model is evaluated."""

    train_words: CountOrZero = key(
        20_000, 'number of training words, spread evenly, for the train perplexity; 0: all of them'
    )
    words: CountOrZero = key(
        0,
        'number of validation and of test words, spread evenly, for the perplexity of long splits; 0: all (exact)',
    )


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: over how many devices training is divided (section 3). Results do not depend on it."""

    data: NumDevices = key(1, 'devices that divide the batch (section 3.1); -1: all remaining devices')
    model: NumDevices = key(
        1,
        'devices that divide the |V| output words (section 3.2); -1: all remaining devices. With an output.kind other '
        'than full they divide the rows of the output words in memory, and all data * model devices divide the batch',
    )
    mode: Literal['shard_map', 'pmap'] = key('shard_map', 'shard_map | pmap (divides only the batch)')

    def __post_init__(self) -> None:
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be 1 or more with parallel.data=-1')


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities that the paper prints for this row; 0 where it prints none."""

    row: str = key('', "name of the row in the paper's table")
    train: NonNegative = key(0.0, 'perplexity of the training words')
    valid: NonNegative = key(0.0, 'perplexity of the validation words')
    test: NonNegative = key(0.0, 'perplexity of the test words')
