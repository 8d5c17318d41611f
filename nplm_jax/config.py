"""The config, checked: a ConfigDict becomes frozen dataclasses, and every impossible value one clear line.

`configs/default.py` says what each key means; here stands what each may be.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.utils.errors import BadInput, require

CORPORA = ('brown', 'ap_news', 'wikitext2', 'text', 'sentences')
NGRAM_FAMILIES = (
    'maximum_likelihood',
    'add_delta',
    'backoff',
    'interpolated',
    'kneser_ney',
    'modified_kneser_ney',
    'classes',
)
RECURRENT = ('rnn', 'gru', 'lstm')
NETWORKS = ('nplm', *RECURRENT)
OUTPUTS = ('full', 'sampled', 'nce', 'two_level')
OPTIMIZERS = ('sgd', 'adam', 'adagrad', 'paper')
PRECISIONS = ('float32', 'bfloat16')
SCHEDULES = ('constant', 'linear', 'cosine')


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
    path: str = ''
    valid_path: str = ''
    test_path: str = ''
    tokens: str = 'words'
    lowercase: bool = True
    split_possessive: bool = True
    boundary_tokens: bool = True
    numbers: bool = False
    proper_nouns: bool = False
    min_count: int = 1
    max_vocabulary: int = 0
    count_over: str = 'all'
    train: float = 0.8
    valid: float = 0.1

    def __post_init__(self):
        _one_of('corpus.name', self.name, CORPORA)
        for key in ('path', 'valid_path', 'test_path'):
            value = getattr(self, key)
            reads = self.name in ('text', 'ap_news') or (self.name == 'wikitext2' and key == 'path')
            require(reads or not value, f'corpus.{key}', value, f'corpus.name={self.name} does not read it')
        _one_of('corpus.tokens', self.tokens, ('words', 'whitespace'))
        _one_of('corpus.count_over', self.count_over, ('all', 'train'))
        _at_least('corpus.min_count', self.min_count, 1)
        ok = self.max_vocabulary == 0 or self.max_vocabulary >= 3
        require(ok, 'corpus.max_vocabulary', self.max_vocabulary, 'must be 0 (no limit) or 3 or more')
        for key in ('train', 'valid'):
            value = getattr(self, key)
            ok = 0 < value < 1 or (value >= 2 and math.isfinite(value))
            require(
                ok, f'corpus.{key}', value, 'must be above 0 and below 1, a fraction of the stream, or 2 or more words'
            )


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """`model.*`: which model, of which order; of the network y = b + Wx + U tanh(d + Hx) and others also its shape."""

    n: int = 5
    m: int = 30
    h: int = 100
    direct: bool = False
    unigram_bias: bool = True
    dropout: float = 0.0
    family: str = 'nplm'

    def __post_init__(self):
        _one_of('model.family', self.family, (*NETWORKS, *NGRAM_FAMILIES))
        if self.family == 'interpolated':
            require(self.n == 3, 'model.n', self.n, 'must be 3: the interpolated model is a trigram')
        none = self.family not in RECURRENT or not self.direct
        require(none, 'model.direct', self.direct, f'must be False for model.family={self.family}, which has none')
        require(self.n >= 2, 'model.n', self.n, 'must be 2 or more: a word is predicted from the n-1 before it')
        require(self.m >= 1, 'model.m', self.m, 'must be 1 or more features a word')
        require(self.h >= 0, 'model.h', self.h, 'must be 0 (no hidden layer) or more')
        require(
            self.h > 0 or self.direct,
            'model.h',
            self.h,
            'no hidden layer needs model.direct=True, else the words before have no influence',
        )
        require(0 <= self.dropout < 1, 'model.dropout', self.dropout, 'must be at least 0 and below 1')

    @property
    def is_network(self) -> bool:
        """Whether it is trained by gradients, the others being estimated from counts."""
        return self.family in NETWORKS

    @property
    def is_recurrent(self) -> bool:
        """Whether it reads a stream word by word and keeps a state, the paper's network reading a window."""
        return self.family in RECURRENT

    def num_parameters(self, vocabulary_size: int, num_classes: int = 0) -> int:
        """Of nplm: |V|(1 + nm + h) + h(1 + (n-1)m) of the paper's section 2; less |V|(n-1)m without direct connections.

        num_classes: of a two-level output layer, each with as many output weights as a word.
        """
        inputs = (self.n - 1) * self.m
        outputs = (vocabulary_size + num_classes) * (1 + self.h + (inputs if self.direct else 0))
        return vocabulary_size * self.m + outputs + self.h * (1 + inputs)


@dataclasses.dataclass(frozen=True)
class OutputSettings:
    """`output.*`: how the loss over all words is computed in training; evaluation is always exact and float32."""

    kind: str = 'full'
    precision: str = 'float32'
    block_size: int = 256
    samples: int = 1000
    proposal: str = 'unigram'
    num_shortlist: int = 1000
    classes: int = 500

    def __post_init__(self):
        _one_of('output.kind', self.kind, OUTPUTS)
        _one_of('output.proposal', self.proposal, ('unigram', 'log_uniform'))
        _at_least('output.samples', self.samples, 1)
        _at_least('output.num_shortlist', self.num_shortlist, 0)
        _at_least('output.classes', self.classes, 1)
        _one_of('output.precision', self.precision, PRECISIONS)
        _at_least('output.block_size', self.block_size, 1)

    @property
    def moves_few_rows(self) -> bool:
        """Whether an update changes only the rows of C, U and W that its loss needs."""
        return self.kind != 'full'

    def check(self, vocabulary_size: int) -> None:
        """Raises: BadInput for more samples or classes than there are words."""
        if self.kind in ('sampled', 'nce'):
            allowed = f'must be {vocabulary_size:,}, the vocabulary, or less'
            require(self.samples <= vocabulary_size, 'output.samples', self.samples, allowed)
        if self.kind == 'two_level':
            allowed = f'must be below {vocabulary_size:,}, the vocabulary'
            require(self.num_shortlist < vocabulary_size, 'output.num_shortlist', self.num_shortlist, allowed)
            tail = vocabulary_size - self.num_shortlist
            allowed = f'must be {tail:,} or less, the words after output.num_shortlist'
            require(self.classes <= tail, 'output.classes', self.classes, allowed)

    def num_classes(self, vocabulary_size: int) -> int:
        """How many classes of several words `output.kind=two_level` makes, none of them empty; else 0."""
        if self.kind != 'two_level':
            return 0
        tail = vocabulary_size - self.num_shortlist
        size = -(-tail // self.classes)
        return -(-tail // size)


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: over how many devices training is spread; its result does not depend on it."""

    data: int = 1
    model: int = 1
    mode: str = 'shard_map'

    def __post_init__(self):
        for key in ('data', 'model'):
            value = getattr(self, key)
            require(value == -1 or value >= 1, f'parallel.{key}', value, 'must be -1 (all that is left) or 1 or more')
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be 1 or more where parallel.data=-1 takes all')
        _one_of('parallel.mode', self.mode, ('shard_map', 'pmap'))


@dataclasses.dataclass(frozen=True)
class NgramSettings:
    """`ngram.*`: what some count-based models need beside their order."""

    delta: float = 0.1
    classes: int = 500

    def __post_init__(self):
        require(0 <= self.delta <= 1e6, 'ngram.delta', self.delta, 'must be at least 0 and at most 1e6')
        _at_least('ngram.classes', self.classes, 1)


@dataclasses.dataclass(frozen=True)
class PaperSettings:
    """`optimizer.paper.*`: the rates of section 2.1 and 4.2, a word."""

    epsilon_0: float = 1e-3
    r: float = 1e-8
    decay: float = 1e-4

    def __post_init__(self):
        _positive('optimizer.paper.epsilon_0', self.epsilon_0)
        _at_least('optimizer.paper.r', self.r, 0)
        _at_least('optimizer.paper.decay', self.decay, 0)


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """`optimizer.*`: how the penalised log-likelihood is climbed."""

    name: str = 'sgd'
    learning_rate: float = 2.0
    schedule: str = 'cosine'
    warmup: int = 0
    momentum: float = 0.0
    clip_norm: float = 0.0
    decay: float = 1e-5
    paper: PaperSettings = PaperSettings()

    def __post_init__(self):
        _one_of('optimizer.name', self.name, OPTIMIZERS)
        _one_of('optimizer.schedule', self.schedule, SCHEDULES)
        _positive('optimizer.learning_rate', self.learning_rate)
        _at_least('optimizer.warmup', self.warmup, 0)
        require(0 <= self.momentum < 1, 'optimizer.momentum', self.momentum, 'must be at least 0 and below 1')
        _at_least('optimizer.clip_norm', self.clip_norm, 0)
        _at_least('optimizer.decay', self.decay, 0)

    @property
    def weight_decay(self) -> float:
        """The decay in force: the paper's own under optimizer.name=paper."""
        return self.paper.decay if self.name == 'paper' else self.decay


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: how long, in what batches, how often looked at and saved."""

    batch_size: int = 128
    epochs: int = 8
    patience: int = 2
    evaluate_every: int = 0
    checkpoint_every: int = 2000
    log_every: int = 250
    steps_per_execution: int = 50
    bptt_length: int = 16

    def __post_init__(self):
        _at_least('train.batch_size', self.batch_size, 1)
        _at_least('train.epochs', self.epochs, 1)
        _at_least('train.patience', self.patience, 1)
        _at_least('train.evaluate_every', self.evaluate_every, 0)
        _at_least('train.checkpoint_every', self.checkpoint_every, 1)
        _at_least('train.log_every', self.log_every, 1)
        _at_least('train.steps_per_execution', self.steps_per_execution, 1)
        _at_least('train.bptt_length', self.bptt_length, 1)


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities that the paper prints for this row; 0 where it prints none."""

    row: str = ''
    train: float = 0.0
    valid: float = 0.0
    test: float = 0.0

    def __post_init__(self):
        for split in ('train', 'valid', 'test'):
            _at_least(f'paper.{split}', getattr(self, split), 0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on."""

    name: str
    corpus: CorpusSettings
    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    train: TrainSettings = TrainSettings()
    ngram: NgramSettings = NgramSettings()
    output: OutputSettings = OutputSettings()
    parallel: ParallelSettings = ParallelSettings()
    paper: PaperRow = PaperRow()
    seed: int = 1

    def __post_init__(self):
        ok = self.name not in ('', '.', '..') and '/' not in self.name and self.name.isprintable()
        require(ok, 'name', self.name, 'must be a printable name without a slash')
        require(0 <= self.seed < 2**31, 'seed', self.seed, 'must be at least 0 and below 2**31')
        how = self.optimizer
        plain = how.name == 'paper' or (how.name == 'sgd' and not how.momentum and not how.clip_norm)
        allowed = 'moves only some rows, and so needs optimizer.name=sgd without momentum and clip_norm, or paper'
        require(plain or not self.output.moves_few_rows, 'output.kind', self.output.kind, allowed)
        if self.model.is_recurrent:
            family, size = f'model.family={self.model.family}', self.train.batch_size
            whole = size % self.train.bptt_length == 0
            require(
                whole, 'train.batch_size', size, f'must be a multiple of train.bptt_length={self.train.bptt_length}'
            )
            require(self.output.kind == 'full', 'output.kind', self.output.kind, f'must be full for {family}')
            require(how.name != 'paper', 'optimizer.name', 'paper', f'must not be paper for {family}: give another')

    @property
    def streams(self) -> int:
        """How many streams a recurrent network reads side by side."""
        return self.train.batch_size // self.train.bptt_length


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks a ConfigDict (or the dictionary of a `config.json`) and freezes it.

    Raises: BadInput naming the key for an unknown or missing key, a wrong type or an impossible value.
    """
    return _freeze(Settings, config.to_dict() if isinstance(config, ConfigDict) else config, '')


def to_dict(settings: Settings) -> dict[str, Any]:
    """The plain nested dictionary that `from_config` reads back, as `config.json` holds it."""
    return dataclasses.asdict(settings)


def _freeze(kind: type, values: Mapping[str, Any], prefix: str) -> Any:
    fields = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise BadInput(f'{prefix}{key}: unknown key; allowed here: {", ".join(fields)}')
    for key in fields:
        if key not in values:
            raise BadInput(f'{prefix}{key}: missing; configs/default.py has every key')
    return kind(**{k: _convert(values[k], fields[k], f'{prefix}{k}') for k in fields})


def _convert(value: Any, kind: type, key: str) -> Any:
    if dataclasses.is_dataclass(kind):
        require(isinstance(value, Mapping), key, value, 'must be a section of keys')
        return _freeze(kind, value, f'{key}.')
    if isinstance(value, int):
        require(-(2**31) <= value < 2**31, key, value, 'must be below 2**31')
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    require(type(value) is kind, key, value, f'must be of type {kind.__name__}')
    return value
