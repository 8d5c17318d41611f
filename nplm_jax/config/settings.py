"""Every key of an experiment: its type, what is allowed, its default and its meaning, once, on a dataclass field.

This module declares the keys of `corpus.*` and those that belong to no part of a run. The parts
(`nplm_jax.config.parts`) declare the others. `python -m nplm_jax.config.parts` lists them in KEYS_FILE, which `--help`,
`--print_config` and messages read without importing JAX.

The defaults are the network of the paper's kind that is best on Brown after about ten minutes on 2 CPU cores.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict

from nplm_jax.config import plugins
from nplm_jax.config.checked_fields import Options, build, declared_field, flatten, list_fields
from nplm_jax.config.component import Check, Count, CountOrZero, NonNegative, Share, at_least, between, key
from nplm_jax.config.plugins import Trusted, is_module, is_path, module_of, trust
from nplm_jax.utils.errors import BadInput, require

MIN_PIECES = 300  # of corpus.pieces: the 256 bytes, the special tokens and some pieces
FORMAT = 1  # version of the layout of a run's folder, recorded in its config.json
DIGESTS, _OWN = 'sha256', 'config.json'  # the key of the digests of files in a config.json, its own among them
KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ between machines
KEYS_FILE = pathlib.Path(__file__).with_name('keys.json')
READS: dict[str, dict[str, list[str]]]  # the keys that each part reads, by the key that chooses it and by its name
_PART_KEYS, READS = json.loads(KEYS_FILE.read_text()).values()

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
_SUMMARIES = {
    'model': 'which model, and its shape.',
    'recurrent': 'how a network over streams is regularised (Merity et al., 2018).',
    'mogrifier': 'the Mogrifier LSTM (Melis et al., 2020), which also reads `recurrent.*`.',
    'residual': 'the window network with residual layers (Sun and Iyyer, 2021).',
    'transformer': 'attention to the last words (Vaswani et al., 2017).',
    'ngram': 'keys of some count-based models.',
    'output': 'how training computes the loss over all |V| words; evaluation is exact and in float32.',
    'optimizer': 'how a network is trained.',
    'optimizer.paper': 'the rate per word, epsilon_t = epsilon_0 / (1 + r t), t in words (sections 2.1 and 4.2).',
}


def _section(prefix: str) -> Any:
    """Returns a section of the keys of parts with its defaults: an instance of a dataclass that is made here."""
    start = f'{prefix}.'
    entries = {name.removeprefix(start): entry for name, entry in _PART_KEYS.items() if name.startswith(start)}
    fields: list[Any] = [(name, *declared_field(entry)) for name, entry in entries.items() if '.' not in name]
    for inner in dict.fromkeys(name.partition('.')[0] for name in entries if '.' in name):
        fields.append((inner, Any, dataclasses.field(default=_section(f'{prefix}.{inner}'))))
    options = [name.removeprefix(start) for name in OPTION_SECTIONS.values() if name.startswith(start)]
    fields += [(name, Any, Options()) for name in options]
    name = f'{prefix.title().replace(".", "")}Settings'
    namespace = {'__doc__': f'`{prefix}.*`: {_SUMMARIES[prefix]}', '__module__': __name__}
    section_class = dataclasses.make_dataclass(name, fields, frozen=True, namespace=namespace)
    globals()[name] = section_class  # where another process that gets settings looks for it
    return section_class()


def _choice(name: str) -> tuple[str, str]:
    """Returns the default and the meaning of a key that names a part."""
    return _PART_KEYS[name]['default'], _PART_KEYS[name]['meaning']


# The section of the options of a plug-in, by the key that names the plug-in.
OPTION_SECTIONS = {
    'corpus.name': 'corpus.options',
    'corpus.tokens': 'corpus.token_options',
    'model.family': 'model.options',
    'output.kind': 'output.options',
    'optimizer.name': 'optimizer.options',
    'optimizer.schedule': 'optimizer.schedule_options',
}
# The keys whose values are arguments of the compiled update: runs that differ only in them share one program.
HYPERPARAMETERS = (
    'seed',
    'optimizer.learning_rate',
    'optimizer.decay',
    'optimizer.paper.epsilon_0',
    'optimizer.paper.r',
    'optimizer.paper.decay',
)
LOADED_PLUGINS = ('model.family', 'output.kind', 'corpus.tokens')  # keys of the plug-ins that a trained model needs


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
    tokens: str = key(*_choice('corpus.tokens'))
    paragraphs: Literal['auto', 'blank_lines', 'lines', 'eos'] = key(
        'auto',
        'of text, ap_news: what separates paragraphs: blank_lines | lines (each line is a paragraph, as in a file with '
        'one sentence per line) | auto (lines if the text has no blank lines and its lines clearly are sentences, else '
        'blank_lines); of wikitext2, wikitext103: auto (<text> before each article, <p> before each line that is not '
        'blank) | eos (<p> after each line, blank ones too: the <eos> of published perplexities)',
    )
    context: Literal['auto', 'stream', 'line'] = key(
        'auto',
        'stream (predictions look across paragraphs) | line (each paragraph is trained on and tested alone, and its '
        'end is predicted, as lmplz and query do; of networks, backoff, kneser_ney and modified_kneser_ney) | auto '
        '(line for these count-based models where each line is a paragraph, else stream)',
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
    words: CountOrZero = key(
        0,
        'number of words of the experiment: the first of the text, with the training, validation and test sets in the '
        'proportions that they have in all of it; of a corpus with a text for each set, the first of each; 0: all',
    )
    options: Options = Options()
    token_options: Options = Options()


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
    )
    calibrate: bool = key(
        False,
        'whether to fit the output bias b to validation words after training, by one offset for all words of '
        'similar training count (training/calibration.py); output.kind must be full, sampled or nce. The paper: no',
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
    model: Any = _section('model')
    recurrent: Any = _section('recurrent')
    mogrifier: Any = _section('mogrifier')
    residual: Any = _section('residual')
    transformer: Any = _section('transformer')
    ngram: Any = _section('ngram')
    output: Any = _section('output')
    optimizer: Any = _section('optimizer')
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    parallel: ParallelSettings = ParallelSettings()
    paper: PaperRow = PaperRow()


# What runs did that were recorded before the key existed.
_ADDED = {
    'corpus.context': 'stream',
    'corpus.test': 0.0,
    'corpus.words': 0,
    'model.embedding_dropout': 0.0,
    'model.input_dropout': -1.0,
    'model.layer_dropout': -1.0,
    'optimizer.cooldown': 0.2,
    'train.average_start': 0.0,
    'train.max_steps': 0,
    'train.sample_words': 0,
    'train.valid_words': 0,
}
FIELDS = dict(list_fields(Settings))  # by flattened key: {'model.h': ...}


def is_option(name: str) -> bool:
    """Returns whether a flattened key names an option of a plug-in, such as `model.options.width`."""
    return name.rpartition('.')[0] in OPTION_SECTIONS.values()


def value_of(settings: Settings, name: str) -> Any:
    """Returns the value of a flattened key, of an option, or of a section."""
    value: Any = settings
    for part in name.split('.'):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def default_config() -> ConfigDict:
    """Returns the config of all defaults, locked against unknown keys; the files in `configs/` change its values.

    The options of plug-ins are not locked; `from_config` checks them.
    """
    config = ConfigDict(to_dict(Settings())).lock()
    for name in OPTION_SECTIONS.values():
        section, _, options = name.partition('.')
        config[section][options].unlock()
    return config


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config and freezes it.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary; a key that it lacks has its default. It is the
            user's: the modules of its plug-ins count as named, and are imported. `from_record` reads those of others.

    Returns:
        The settings. `runs.experiment.load_settings` also makes the parts of them.

    Raises:
        BadInput: A key is unknown, or has a wrong type or an impossible value.
    """
    flat = flatten(config)
    with trusting(flat):
        return _build(flat)


def _build(flat: Mapping[str, Any]) -> Settings:
    """Returns the settings; the options of the plug-ins that the user named are checked, and their paths `Trusted`."""
    trusted = {key: Trusted(path) for key, path in _plugins_among(flat).items() if plugins.is_allowed(path)}
    return build(Settings, {**flat, **trusted}, option_classes(flat))


def option_classes(flat: Mapping[str, Any], imports: bool = True) -> dict[str, type]:
    """Returns the dataclass of the options of each plug-in whose module the user named, by the key of their section.

    Args:
        flat: Values by flattened key.
        imports: Whether to import plug-ins; else those of built-in parts alone are returned, which have no fields.

    Raises:
        BadInput: A plug-in cannot be imported or is of another kind.
    """
    options: dict[str, type] = {}
    for chooser, section in OPTION_SECTIONS.items():
        path = flat.get(chooser, FIELDS[chooser].default)
        if not (isinstance(path, str) and is_path(path)):
            options[section] = plugins.NoOptions
        elif imports and plugins.is_allowed(path):
            options[section] = plugins.options_class(chooser, path, section, FIELDS)
    return options


def _plugins_among(flat: Mapping[str, Any]) -> dict[str, str]:
    """Returns the import paths of plug-ins among values, by key."""
    return {key: path for key in OPTION_SECTIONS if isinstance(path := flat.get(key), str) and is_path(path)}


def trusting(flat: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of the plug-ins among the user's values, by flattened key."""
    return trust(filter(is_module, map(module_of, _plugins_among(flat).values())))  # `plugins.load` refuses the others


def trusting_settings(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of the plug-ins that settings name and whose paths are `Trusted`."""
    return trusting({key: path for key, path in to_flat(settings).items() if isinstance(path, Trusted)})


def plugin_modules(settings: Settings, keys: Iterable[str] = OPTION_SECTIONS) -> list[str]:
    """Returns the modules of a config's plug-ins, of those that some keys name."""
    paths = [value_of(settings, key) for key in keys]
    return list(dict.fromkeys(module_of(path) for path in paths if is_path(path)))


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads, of values that JSON and a ConfigDict can hold."""
    plain = lambda items: {key: str(value) if isinstance(value, Trusted) else value for key, value in items}  # noqa: E731
    return dataclasses.asdict(settings, dict_factory=plain)


def to_flat(settings: Settings) -> dict[str, Any]:
    """Returns the values of all keys by flattened key: {'model.h': 50}."""
    return flatten(dataclasses.asdict(settings))


def to_record(settings: Settings, digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns what the config.json of a run's folder holds: every key, the format of the folder, and digests.

    Args:
        settings: The settings.
        digests: The SHA-256 of other files of the folder by name.
    """
    record = {'format': FORMAT, **to_dict(settings)}
    return {**record, DIGESTS: {**(digests or {}), _OWN: _digest(flatten(record))}}


def _digest(flat: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a record without the keys on which no result depends."""
    kept = {key: value for key, value in flat.items() if key not in KEYS_OF_MACHINE and not key.startswith('parallel.')}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def from_record(record: Mapping[str, Any]) -> Settings:
    """Returns the settings that a config.json holds. Imports no plug-in: their options are dictionaries; see `replace`.

    Raises:
        BadInput: The folder has another format, its digest is wrong, or a key is missing, unknown or has an impossible
            value.
    """
    flat = flatten({key: value for key, value in record.items() if key != DIGESTS})
    own = digests_of(record).get(_OWN, digest := _digest(flat))  # older runs have none
    found = flat.pop('format', None)
    require(found == FORMAT, 'format', found, f'must be {FORMAT}, the only format that this version reads')
    require(own == digest, DIGESTS, own, 'is not that of the other keys; they are damaged or were edited')
    flat = {**_ADDED, **flat}
    if missing := next((name for name in FIELDS if name not in flat), None):
        raise BadInput(missing, 'missing')
    return build(Settings, flat, option_classes(flat, imports=False))


def digests_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the digests in a config.json by the names of the files. Raises: BadInput."""
    digests = record.get(DIGESTS, {})
    is_right = isinstance(digests, dict) and all(isinstance(x, str) and '/' not in name for name, x in digests.items())
    require(is_right, DIGESTS, digests, 'must have a SHA-256 for each name of a file')
    return digests


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`.

    The changes are the user's: see `from_config`. A plug-in of the settings is imported, and its options are checked,
    where the user named its module.
    """
    with trusting(changes):
        return _build({**to_flat(settings), **changes})
