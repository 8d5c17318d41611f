"""The config, checked and frozen: a ConfigDict becomes frozen dataclasses, and every impossible value one clear line.

`configs/default.py` says what each key means and has the only defaults; here stands what each key may be. Names that a
registry knows (`model.family`, `output.kind`) are checked there: `runs.experiment.load_settings` checks all.
"""

import copy
import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from nplm_jax.utils.errors import BadInput, require

OPTIMIZERS = ('sgd', 'adam', 'adagrad', 'paper')
Precision = Literal['float32', 'bfloat16']
PRECISIONS = ('float32', 'bfloat16')
SCHEDULES = ('constant', 'linear', 'cosine')
# Keys and values of earlier versions, which a config.json may still have.
KEY_ALIASES = {
    'corpus.marks': 'corpus.boundary_tokens',
    'output.head': 'output.num_shortlist',
    'train.steps_per_dispatch': 'train.steps_per_execution',
    'train.unroll': 'train.bptt_length',
}
VALUE_ALIASES = {('output.kind', 'classes'): 'two_level'}
# Keys that earlier versions did not have, with the values that say what they did.
NEW_KEYS = {
    'model.layers': 1,
    'model.tied': False,
    'model.output_dropout': -1.0,
    'model.word_dropout': 0.0,
    'model.variational': False,
    'model.precision': 'float32',
    'recurrent.weight_dropout': 0.0,
    'recurrent.activation_penalty': 0.0,
    'recurrent.slowness_penalty': 0.0,
    'residual.averages': 3,
    'residual.expansion': 2,
    'train.average': 0.0,
}


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    require(value in allowed, key, value, f'must be one of {", ".join(allowed)}')


def _at_least(key: str, value: float, least: float) -> None:
    require(math.isfinite(value) and value >= least, key, value, f'must be {least} or more')


def _positive(key: str, value: float) -> None:
    require(math.isfinite(value) and value > 0, key, value, 'must be above 0 and finite')


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """`corpus.*`: which text, how it is cut into words, which words are rare, how it is split."""

    name: str
    path: str
    valid_path: str
    test_path: str
    tokens: str
    lowercase: bool
    split_possessive: bool
    boundary_tokens: bool
    numbers: bool
    proper_nouns: bool
    min_count: int
    max_vocabulary: int
    count_over: str
    train: float
    valid: float

    def __post_init__(self) -> None:
        _one_of('corpus.tokens', self.tokens, ('words', 'whitespace'))
        _one_of('corpus.count_over', self.count_over, ('all', 'train'))
        _at_least('corpus.min_count', self.min_count, 1)
        ok = self.max_vocabulary == 0 or self.max_vocabulary >= 3
        require(ok, 'corpus.max_vocabulary', self.max_vocabulary, 'must be 0 (no limit) or 3 or more')
        for key in ('train', 'valid'):
            value = getattr(self, key)
            ok = 0 < value < 1 or (value >= 2 and math.isfinite(value))
            allowed = 'must be above 0 and below 1, a fraction of the stream, or 2 or more words'
            require(ok, f'corpus.{key}', value, allowed)


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """`model.*`: which model, its order, and the shape of a network."""

    family: str
    n: int
    m: int
    h: int
    direct: bool
    unigram_bias: bool
    dropout: float
    layers: int
    tied: bool
    output_dropout: float
    word_dropout: float
    variational: bool
    precision: Precision

    def __post_init__(self) -> None:
        require(self.n >= 2, 'model.n', self.n, 'must be 2 or more: a word is predicted from the n-1 before it')
        require(self.m >= 1, 'model.m', self.m, 'must be 1 or more features a word')
        require(self.h >= 0, 'model.h', self.h, 'must be 0 (no hidden layer) or more')
        require(self.layers >= 1, 'model.layers', self.layers, 'must be 1 or more')
        for key in ('dropout', 'word_dropout'):
            value = getattr(self, key)
            require(0 <= value < 1, f'model.{key}', value, 'must be at least 0 and below 1')
        ok = self.output_dropout == -1 or 0 <= self.output_dropout < 1
        require(ok, 'model.output_dropout', self.output_dropout, 'must be -1 (as dropout), or at least 0 and below 1')
        _one_of('model.precision', self.precision, PRECISIONS)


@dataclasses.dataclass(frozen=True)
class RecurrentSettings:
    """`recurrent.*`: how rnn, gru and lstm are regularised."""

    weight_dropout: float
    activation_penalty: float
    slowness_penalty: float

    def __post_init__(self) -> None:
        ok = 0 <= self.weight_dropout < 1
        require(ok, 'recurrent.weight_dropout', self.weight_dropout, 'must be at least 0 and below 1')
        _at_least('recurrent.activation_penalty', self.activation_penalty, 0)
        _at_least('recurrent.slowness_penalty', self.slowness_penalty, 0)


@dataclasses.dataclass(frozen=True)
class ResidualSettings:
    """`residual.*`: what the residual window network has beside `model.*`."""

    averages: int
    expansion: int

    def __post_init__(self) -> None:
        ok = 0 <= self.averages <= 16
        require(ok, 'residual.averages', self.averages, 'must be at least 0 and at most 16')
        _at_least('residual.expansion', self.expansion, 1)


@dataclasses.dataclass(frozen=True)
class NgramSettings:
    """`ngram.*`: what some count-based models need beside their order."""

    delta: float
    classes: int

    def __post_init__(self) -> None:
        require(0 <= self.delta <= 1e6, 'ngram.delta', self.delta, 'must be at least 0 and at most 1e6')
        _at_least('ngram.classes', self.classes, 1)


@dataclasses.dataclass(frozen=True)
class OutputSettings:
    """`output.*`: how the loss over all words is computed in training; evaluation is always exact and float32."""

    kind: str
    precision: Precision
    block_size: int
    samples: int
    proposal: str
    num_shortlist: int
    classes: int

    def __post_init__(self) -> None:
        _one_of('output.proposal', self.proposal, ('unigram', 'log_uniform'))
        _at_least('output.samples', self.samples, 1)
        _at_least('output.num_shortlist', self.num_shortlist, 0)
        _at_least('output.classes', self.classes, 1)
        _one_of('output.precision', self.precision, PRECISIONS)
        _at_least('output.block_size', self.block_size, 1)


@dataclasses.dataclass(frozen=True)
class PaperOptimizerSettings:
    """`optimizer.paper.*`: the rates of sections 2.1 and 4.2, per word."""

    epsilon_0: float
    r: float
    decay: float

    def __post_init__(self) -> None:
        _positive('optimizer.paper.epsilon_0', self.epsilon_0)
        _at_least('optimizer.paper.r', self.r, 0)
        _at_least('optimizer.paper.decay', self.decay, 0)


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """`optimizer.*`: how the penalised negative log-likelihood is minimised."""

    name: str
    learning_rate: float
    schedule: str
    warmup: int
    momentum: float
    clip_norm: float
    decay: float
    paper: PaperOptimizerSettings

    def __post_init__(self) -> None:
        _one_of('optimizer.name', self.name, OPTIMIZERS)
        _one_of('optimizer.schedule', self.schedule, SCHEDULES)
        _positive('optimizer.learning_rate', self.learning_rate)
        _at_least('optimizer.warmup', self.warmup, 0)
        require(0 <= self.momentum < 1, 'optimizer.momentum', self.momentum, 'must be at least 0 and below 1')
        _at_least('optimizer.clip_norm', self.clip_norm, 0)
        _at_least('optimizer.decay', self.decay, 0)

    @property
    def weight_decay(self) -> float:
        """The decay in force: the paper's under optimizer.name=paper."""
        return self.paper.decay if self.name == 'paper' else self.decay

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is the gradient times a rate, so that each row of a parameter can be updated alone."""
        return self.name == 'paper' or (self.name == 'sgd' and not self.momentum and not self.clip_norm)


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: how long, in what batches, how often evaluated and saved."""

    batch_size: int
    average: float
    epochs: int
    patience: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    steps_per_execution: int
    bptt_length: int

    def __post_init__(self) -> None:
        _at_least('train.batch_size', self.batch_size, 1)
        require(0 <= self.average < 1, 'train.average', self.average, 'must be at least 0 and below 1')
        _at_least('train.epochs', self.epochs, 1)
        _at_least('train.patience', self.patience, 1)
        _at_least('train.evaluate_every', self.evaluate_every, 0)
        _at_least('train.checkpoint_every', self.checkpoint_every, 1)
        _at_least('train.log_every', self.log_every, 1)
        _at_least('train.steps_per_execution', self.steps_per_execution, 1)
        _at_least('train.bptt_length', self.bptt_length, 1)


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: over how many devices training is divided; its result does not depend on it."""

    data: int
    model: int
    mode: str

    def __post_init__(self) -> None:
        for key in ('data', 'model'):
            value = getattr(self, key)
            require(value == -1 or value >= 1, f'parallel.{key}', value, 'must be -1 (all that is left) or 1 or more')
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be 1 or more where parallel.data=-1 takes all')
        _one_of('parallel.mode', self.mode, ('shard_map', 'pmap'))


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities that the paper prints for this row; 0 where it prints none."""

    row: str
    train: float
    valid: float
    test: float

    def __post_init__(self) -> None:
        for split in ('train', 'valid', 'test'):
            _at_least(f'paper.{split}', getattr(self, split), 0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on."""

    name: str
    seed: int
    corpus: CorpusSettings
    model: ModelSettings
    recurrent: RecurrentSettings
    residual: ResidualSettings
    ngram: NgramSettings
    output: OutputSettings
    optimizer: OptimizerSettings
    train: TrainSettings
    parallel: ParallelSettings
    paper: PaperRow

    def __post_init__(self) -> None:
        ok = self.name not in ('', '.', '..') and '/' not in self.name and self.name.isprintable()
        require(ok, 'name', self.name, 'must be a printable name without a slash')
        require(0 <= self.seed < 2**31, 'seed', self.seed, 'must be at least 0 and below 2**31')


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config and freezes it.

    Args:
        config: A ConfigDict, or the dictionary of a `config.json`, also of an earlier version (KEY_ALIASES).

    Returns:
        The settings. `runs.experiment.load_settings` checks them against the registries as well.

    Raises:
        BadInput: A key is unknown or missing, or has a wrong type or an impossible value.
    """
    values = config.to_dict() if isinstance(config, ConfigDict) else config
    return _freeze(Settings, _with_current_names(values), '')


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads, as `config.json` holds it."""
    return dataclasses.asdict(settings)


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`."""
    values = to_dict(settings)
    for key, value in changes.items():
        *sections, last = key.split('.')
        section = values
        for name in sections:
            section = section[name]
        section[last] = value
    return from_config(values)


def _with_current_names(earlier: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the values with the keys and values of earlier versions replaced by today's."""
    values: dict[str, Any] = copy.deepcopy(dict(earlier))
    for old, new in KEY_ALIASES.items():
        (section, old_key), new_key = old.split('.'), new.split('.')[1]
        if isinstance(values.get(section), dict) and old_key in values[section]:
            values[section].setdefault(new_key, values[section].pop(old_key))
    for (key, old_value), new_value in VALUE_ALIASES.items():
        section, name = key.split('.')
        if isinstance(values.get(section), dict) and values[section].get(name) == old_value:
            values[section][name] = new_value
    for key, value in NEW_KEYS.items():
        section, name = key.split('.')
        if isinstance(values.setdefault(section, {}), dict):  # a section of another type is refused later
            values[section].setdefault(name, value)
    return values


def _freeze(section_class: type, values: Mapping[str, Any], prefix: str) -> Any:
    fields = typing.get_type_hints(section_class)
    for key in values:
        if key not in fields:
            raise BadInput(f'{prefix}{key}: unknown key; allowed here: {", ".join(fields)}')
    for key in fields:
        if key not in values:
            raise BadInput(f'{prefix}{key}: missing; configs/default.py has every key')
    return section_class(**{k: _convert(values[k], fields[k], f'{prefix}{k}') for k in fields})


def _convert(value: Any, expected: type, key: str) -> Any:
    if dataclasses.is_dataclass(expected):
        require(isinstance(value, Mapping), key, value, 'must be a section of keys')
        return _freeze(expected, value, f'{key}.')
    if typing.get_origin(expected) is Literal:
        expected = str
    if isinstance(value, int):
        require(-(2**31) <= value < 2**31, key, value, 'must be below 2**31')
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    require(type(value) is expected, key, value, f'must be of type {expected.__name__}')
    return value
