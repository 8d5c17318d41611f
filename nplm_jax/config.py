"""Every key of an experiment: its type, what is allowed, its default and its meaning, once, on a dataclass field.

`configs/`, the reference in docs/, `--print_config` and the messages about wrong values are made from these fields. The
defaults are the network of the paper's kind that is best on Brown after about ten minutes on 2 CPU cores. Registries
check the names that they know (`model.family`, `output.kind`); `runs.experiment.load_settings` makes all checks.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict

from nplm_jax.utils.checked_fields import Check, OptionsOf, at_least, build, flatten, key, list_fields
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.plugins import IMPORT_PATH, NoOptions, allow, is_module, is_path, module_of

MIN_PIECES = 300  # of corpus.pieces: the 256 bytes, the special tokens and some pieces
FORMAT = 1  # version of the layout of a run's folder, recorded in its config.json

Precision = Literal['float32', 'bfloat16', 'auto']
Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, Check('must be above 0 and finite', lambda value: math.isfinite(value) and value > 0)]
Share = Annotated[float, Check('must be at least 0 and below 1', lambda value: 0 <= value < 1)]
ShareOrDefault = Annotated[
    float, Check('must be -1 (as dropout), or at least 0 and below 1', lambda value: value == -1 or 0 <= value < 1)
]
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
OPTIMIZERS = ('sgd', 'adam', 'rowwise_adam', 'adagrad', 'paper')
OptimizerName = Annotated[
    str,
    Check(
        f'must be one of {", ".join(OPTIMIZERS)}, or {IMPORT_PATH}',
        lambda value: value in OPTIMIZERS or is_path(value),
        OPTIMIZERS,
    ),
]
Name = Annotated[
    str,
    Check(
        'must be a printable name without a slash',
        lambda value: value not in ('', '.', '..') and '/' not in value and value.isprintable(),
    ),
]


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
    tokens: str = key(
        'words',
        'words (splits off punctuation) | whitespace (for tokenized text) | pieces (parts of words, learned from the '
        'training texts) | characters | bytes | an import path; of a tokenized corpus, such as brown, words means '
        'whitespace',
    )
    paragraphs: Literal['auto', 'blank_lines', 'lines'] = key(
        'auto',
        'of text, ap_news: what separates paragraphs: blank_lines | lines (each line is a paragraph, as in a file with '
        'one sentence per line) | auto (lines if the text has no blank lines and its lines clearly are sentences, else '
        'blank_lines)',
    )
    context: Literal['auto', 'stream', 'line'] = key(
        'auto',
        'of backoff, kneser_ney and modified_kneser_ney: stream (n-grams go on across paragraphs) | line (each '
        'paragraph is counted and tested alone, after <s> and with </s> at its end, as lmplz and query do) | auto '
        '(line where each line is a paragraph, else stream); other families read a stream',
    )
    pieces: Annotated[int, at_least(MIN_PIECES)] = key(
        8000, 'of tokens=pieces: |V|, special tokens and the 256 bytes included'
    )
    piece_model: Literal['bpe', 'unigram'] = key(
        'bpe', 'of tokens=pieces: bpe (byte-pair encoding) | unigram (the unigram model of SentencePiece)'
    )
    normalization: Literal['none', 'nfc', 'nfkc'] = key(
        'none', "of tokens=pieces, characters, bytes: Unicode's normal form of the text; none keeps every byte"
    )
    lowercase: bool = key(True, 'merge upper and lower case; the paper (section 4): true')
    split_possessive: bool = key(True, "dog's -> dog 's")
    boundary_tokens: bool = key(True, 'put <text> before each text and <p> before each paragraph')
    numbers: bool = key(False, 'replace numbers by <number>; the paper: true on AP News')
    proper_nouns: bool = key(
        False, 'replace proper nouns by <proper> (data/tokenizers/proper_nouns.py); the paper: true on AP News'
    )
    min_count: Count = key(1, 'words with a lower count become <rare>; the paper: 4')
    max_vocabulary: MaxVocabulary = key(
        0, 'largest |V|, <rare> included; 0: no limit; the paper: 16,383 on Brown, 17,964 on AP News'
    )
    count_over: Literal['all', 'train'] = key(
        'all', "all | train: the words that are counted to decide which are rare; the paper's figures fit all"
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
    options: Annotated[Any, OptionsOf('name', is_class=False)] = NoOptions()


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """`model.*`: which model, and its shape."""

    family: str = key(
        'nplm',
        "the paper's network: nplm. Other networks that see only the last words: "
        'residual | window_lstm. Recurrent networks: rnn | gru | lstm | mogrifier. Count-based models (section 4.1): '
        'interpolated | kneser_ney | modified_kneser_ney | classes | maximum_likelihood | add_delta | backoff (which '
        'uses the shorter context where the longer one was never seen). Or an import path, package.module:Name',
    )
    n: Annotated[int, at_least(2)] = key(
        6, 'order: the n-1 previous words predict a word; recurrent networks do not read it; the paper: 3 and 5'
    )
    m: Count = key(100, 'features per word; the paper: 30 and 60')
    h: CountOrZero = key(200, 'hidden units, 0 for no hidden layer; the paper: 0, 50 and 100')
    direct: bool = key(False, 'direct connections W from the features to the output; the paper: both')
    unigram_bias: bool = key(
        True, 'initialise b with the log-frequencies of the training words; the paper does not say'
    )
    dropout: Share = key(0.25, 'probability with which training zeroes a feature or a hidden unit; the paper: 0')
    layers: Count = key(1, 'number of layers')
    tied: bool = key(False, 'use C as the output matrix U too')
    output_dropout: ShareOrDefault = key(
        -1.0, 'dropout of the features that the output matrix multiplies; -1: the value of model.dropout'
    )
    word_dropout: Share = key(0.0, 'probability with which training zeroes all features of a word')
    variational: bool = key(False, 'use one dropout mask for all words of a stream in an update')
    precision: Precision = key(
        'auto', 'of the matrix products before the output layer, in training; values as of output.precision'
    )
    options: Annotated[Any, OptionsOf('family', is_class=True)] = NoOptions()


@dataclasses.dataclass(frozen=True)
class RecurrentSettings:
    """`recurrent.*`: how a network over streams is regularised (Merity et al., 2018)."""

    weight_dropout: Share = key(0.0, 'probability with which an update zeroes a recurrent (state-to-state) weight')
    activation_penalty: NonNegative = key(
        0.0, "coefficient of the mean square of the last layer's output, after dropout"
    )
    slowness_penalty: NonNegative = key(
        0.0, "coefficient of the mean square of the change of the last layer's output from word to word"
    )


@dataclasses.dataclass(frozen=True)
class MogrifierSettings:
    """`mogrifier.*`: the Mogrifier LSTM (Melis et al., 2020), which also reads `recurrent.*`."""

    rounds: Annotated[int, Check('must be at least 1 and at most 16', lambda value: 1 <= value <= 16)] = key(
        5, 'rounds in which the input and the state gate each other before each word'
    )


@dataclasses.dataclass(frozen=True)
class ResidualSettings:
    """`residual.*`: the window network with residual layers (Sun and Iyyer, 2021)."""

    averages: Annotated[int, Check('must be at least 0 and at most 16', lambda value: 0 <= value <= 16)] = key(
        3,
        'number of sums over older words: the n-1 before the window, the 2(n-1) before those, ...; each sum is '
        'divided by sqrt(its number of words)',
    )
    expansion: Count = key(2, 'hidden units inside a layer, as a multiple of h')


@dataclasses.dataclass(frozen=True)
class NgramSettings:
    """`ngram.*`: options of some count-based models."""

    delta: Annotated[float, Check('must be at least 0 and at most 1e6', lambda value: 0 <= value <= 1e6)] = key(
        0.1, 'of add_delta: the number that is added to every count'
    )
    classes: Count = key(500, 'of classes: number of word classes; the paper: 150 to 2000')
    prune: str = key(
        '0',
        'of modified_kneser_ney, as lmplz --prune: for each order from 1 on, n-grams of at most this count are dropped '
        "(the first is 0); the last number holds for all higher orders: '0 0 1' drops n-grams of order 3 or more that "
        'occur once',
    )
    prune_entropy: Share = key(
        0.0,
        'of kneser_ney and modified_kneser_ney, as ngram -prune of SRILM: n-grams are dropped whose removal raises the '
        'perplexity by a smaller share than this (Stolcke, 1998); 1e-7 leaves a quarter of a 5-gram of Brown; 0: off',
    )
    bits: Annotated[int, Check('must be 0 (64-bit numbers), 8 or 16', lambda value: value in (0, 8, 16))] = key(
        0,
        'of back-off models: 8 or 16 bits for each log p above order 1, and 32 for each back-off weight, such that the '
        'probabilities sum to one; 0: 64 bits for each',
    )


@dataclasses.dataclass(frozen=True)
class OutputSettings:
    """`output.*`: how training computes the loss over all |V| words; evaluation is exact and in float32."""

    kind: str = key(
        'full',
        'full | sampled (importance sampling, section 5.2) | nce (noise-contrastive estimation) | two_level (predicts '
        'the class of the word, then the word in the class) | tree (a binary decision at each node above the word) | '
        'an import path',
    )
    precision: Precision = key(
        'auto',
        'of full, sampled and nce: matrix products over |V| in float32 | bfloat16 | auto (bfloat16 where the processor '
        'or the accelerator has instructions for it); sums and parameters stay float32',
    )
    block_size: Count = key(256, 'of full: number of examples whose |V| scores are in memory at once; 1024 suits a GPU')
    samples: Count = key(
        1000,
        'of sampled and nce: number of distinct words that are drawn per update and shared by all examples of the '
        'batch; at most |V|',
    )
    proposal: Literal['unigram', 'log_uniform'] = key(
        'unigram',
        'of sampled and nce: the distribution of the drawn words: unigram (by training count) | log_uniform (by rank)',
    )
    num_shortlist: CountOrZero = key(
        1000, 'of two_level: number of the most frequent words, each of which is a class of its own'
    )
    classes: Count = key(
        500, 'of two_level: largest number of classes of the other words; these classes have equal sizes'
    )
    tree: str = key('huffman', 'of tree: huffman | random | a file with lines `word<TAB>code`, codes of 0 and 1')
    options: Annotated[Any, OptionsOf('kind', is_class=True)] = NoOptions()


@dataclasses.dataclass(frozen=True)
class PaperOptimizerSettings:
    """`optimizer.paper.*`: the rate per word, epsilon_t = epsilon_0 / (1 + r t), t in words (sections 2.1 and 4.2)."""

    epsilon_0: Positive = key(1e-3, 'the paper: 1e-3')
    r: NonNegative = key(1e-8, 'the paper: 1e-8')
    decay: NonNegative = key(1e-4, 'the paper: 1e-4 on Brown, 1e-5 on AP News')


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """`optimizer.*`: how a network is trained."""

    name: OptimizerName = key(
        'sgd',
        'sgd | adam | adagrad | rowwise_adam (Adam, but each row of C, U, W and b has one second moment and no '
        'momentum, so that an update touches few rows unless output.kind is full) | paper (section 2.1). The gradient '
        'is the mean over a batch; with paper it is the sum',
    )
    learning_rate: Positive = key(
        2.0, 'not of paper: the peak rate; with sgd, a batch half as large needs a rate half as large'
    )
    schedule: Literal['constant', 'linear', 'cosine'] = key(
        'cosine', 'not of paper: constant | linear | cosine (both fall to zero over all epochs)'
    )
    warmup: CountOrZero = key(0, 'not of paper: number of updates of linear warm-up')
    momentum: Share = key(0.0, 'of sgd: the decay of the momentum; 0: none')
    tables: Literal['rowwise_adam', 'same'] = key(
        'rowwise_adam',
        'of an import path: what updates C, U, W and b: rowwise_adam (the named optimizer updates the hidden matrices, '
        'Adam the other vectors) | same (the named optimizer updates all parameters)',
    )
    table_rate: Positive = key(1.0, 'not of paper: the rate of C, U, W and b, as a multiple of learning_rate')
    row_adaptivity: Annotated[float, Check('must be at least 0 and at most 1', lambda value: 0 <= value <= 1)] = key(
        1.0,
        'of rowwise_adam, as name or as optimizer.tables: 1: each row has its own second moment; 0: all rows of a '
        'parameter share one; between: a geometric mean of both. Below 1 the rows of rare words move less',
    )
    clip_norm: NonNegative = key(0.0, 'not of paper: largest norm of all gradients together; 0: no limit')
    decay: NonNegative = key(
        1e-5,
        'not of paper: R(theta) = decay/2 |theta|^2 over C, H, U, W. With rowwise_adam and import paths it is '
        'decoupled, as in AdamW: each update multiplies these weights by 1 - rate * decay',
    )
    paper: PaperOptimizerSettings = PaperOptimizerSettings()
    options: Annotated[Any, OptionsOf('name', is_class=False)] = NoOptions()

    @property
    def weight_decay(self) -> float:
        """The decay in force: the paper's under optimizer.name=paper."""
        return self.paper.decay if self.name == 'paper' else self.decay


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: how long, in which batches, how often it is validated, saved and logged."""

    batch_size: Count = key(128, 'words per update; the paper: 1')
    accumulate: Count = key(
        1,
        'number of parts of a batch, computed one after another to save memory; the update is that of the whole batch',
    )
    average: Share = key(
        0.0,
        'decay per update of a running average of the parameters (at first a plain mean), which is the result; 0: none',
    )
    suffix_smoothing: NonNegative = key(
        0.0,
        'smooths the rows of C, U and W after training, before train.calibrate: the training count at which the row of '
        'a word weighs as much as the mean row of words with its ending (training/suffix_smoothing.py); 0: no '
        'smoothing, as in the paper',
    )
    calibrate: bool = key(
        False,
        'whether to fit the output bias b to validation words after training, by one offset for all words of '
        'similar training count (training/calibration.py); output.kind must be full, sampled or nce. The paper: no',
    )
    epochs: Count = key(8, 'largest number of passes over the training words; the paper on Brown: 10 to 20')
    patience: Count = key(2, 'number of validations without a better perplexity after which training stops')
    evaluate_every: CountOrZero = key(0, 'updates between validations, 0: once an epoch')
    checkpoint_every: Count = key(2000, 'updates between checkpoints')
    log_every: Count = key(250, 'updates between lines of metrics.jsonl')
    steps_per_execution: Count = key(
        50, 'updates in one call of the compiled program; validations, checkpoints and logs wait for its end'
    )
    bptt_length: Count = key(
        16, 'of networks over streams: words per stream in an update; batch_size / bptt_length streams run in parallel'
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


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on."""

    name: Name = key('default', 'name of the run, of its folder and of its row in a table')
    seed: CountOrZero = key(
        1, 'random seed of the initial parameters, the order of the words, dropout and sampled words'
    )
    corpus: CorpusSettings = CorpusSettings()
    model: ModelSettings = ModelSettings()
    recurrent: RecurrentSettings = RecurrentSettings()
    mogrifier: MogrifierSettings = MogrifierSettings()
    residual: ResidualSettings = ResidualSettings()
    ngram: NgramSettings = NgramSettings()
    output: OutputSettings = OutputSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    parallel: ParallelSettings = ParallelSettings()
    paper: PaperRow = PaperRow()


# What runs did that were recorded before the key existed.
_ADDED = {'corpus.context': 'stream', 'corpus.test': 0.0}
FIELDS = dict(list_fields(Settings))  # by flattened key: {'model.h': ...}
LOADED_PLUGINS = ('model.family', 'output.kind', 'corpus.tokens')  # keys of the plug-ins that a trained model needs
PLUGIN_KEYS = (*LOADED_PLUGINS, 'optimizer.name', 'corpus.name')  # keys that an import path can be the value of
PLUGINS = tuple(f.name for f in dataclasses.fields(Settings) if hasattr(f.default, 'options'))  # sections with plug-ins


def is_option(name: str) -> bool:
    """Returns whether a flattened key names an option of a plug-in, such as `model.options.width`."""
    section, *rest = name.split('.')
    return section in PLUGINS and len(rest) == 2 and rest[0] == 'options'


def default_config() -> ConfigDict:
    """Returns the config of all defaults, locked against unknown keys; the files in `configs/` change its values.

    The options of plug-ins are not locked; `from_config` checks them.
    """
    config = ConfigDict(to_dict(Settings())).lock()
    for section in PLUGINS:
        config[section].options.unlock()
    return config


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config and freezes it.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary; a key that it lacks has its default. It is the
            user's: the modules of its plug-ins count as named, and are imported. `from_record` reads those of others.

    Returns:
        The settings. `runs.experiment.load_settings` checks them against the registries as well.

    Raises:
        BadInput: A key is unknown, or has a wrong type or an impossible value.
    """
    flat = flatten(config)
    _allow_plugins(flat)
    return build(Settings, flat)


def _allow_plugins(flat: Mapping[str, Any]) -> None:
    """Counts the modules of the plug-ins among the user's values as named."""
    paths = [value for key in PLUGIN_KEYS if isinstance(value := flat.get(key), str) and is_path(value)]
    allow(filter(is_module, map(module_of, paths)))  # `plugins.load` refuses the others


def plugin_modules(settings: Settings, keys: Sequence[str] = PLUGIN_KEYS) -> list[str]:
    """Returns the modules of a config's plug-ins, of those that some keys name."""
    flat = to_flat(settings)
    return list(dict.fromkeys(module_of(flat[key]) for key in keys if is_path(flat[key])))


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads."""
    return dataclasses.asdict(settings)


def to_flat(settings: Settings) -> dict[str, Any]:
    """Returns the values of all keys by flattened key: {'model.h': 50}."""
    return flatten(to_dict(settings))


def to_record(settings: Settings) -> dict[str, Any]:
    """Returns what the config.json of a run's folder holds: every key, and the format of the folder."""
    return {'format': FORMAT, **to_dict(settings)}


def from_record(record: Mapping[str, Any]) -> Settings:
    """Returns the settings that a config.json holds. Imports no plug-in: their options are dictionaries; see `replace`.

    Raises:
        BadInput: The folder has another format, or a key is missing, unknown or has an impossible value.
    """
    flat = flatten(record)
    found = flat.pop('format', None)
    require(found == FORMAT, 'format', found, f'must be {FORMAT}, the only format that this version reads')
    flat = {**_ADDED, **flat}
    if missing := next((name for name in FIELDS if name not in flat), None):
        raise BadInput(f'{missing}: missing')
    return build(Settings, flat, imports=False)


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`.

    The changes are the user's: see `from_config`. A plug-in of the settings is imported, and its options are checked,
    where the user named its module.
    """
    _allow_plugins(changes)
    return build(Settings, {**to_flat(settings), **changes})
