"""The validated config: converts a ConfigDict to frozen dataclasses; an invalid value is a one-line error.

`configs/default.py` says what each key means and has the only defaults; the types here say what each key may be. Names
that a registry knows (`model.family`, `output.kind`) are checked there: `runs.experiment.load_settings` checks all.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict

from nplm_jax.earlier_versions import translate
from nplm_jax.utils.checked_fields import Check, at_least, build, flatten
from nplm_jax.utils.errors import require

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


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """`corpus.*`: which text, how it is cut into words, which words are rare, how it is split."""

    name: str
    path: str
    valid_path: str
    test_path: str
    column: str
    tokens: Literal['words', 'whitespace']
    paragraphs: Literal['auto', 'blank_lines', 'lines']
    lowercase: bool
    split_possessive: bool
    boundary_tokens: bool
    numbers: bool
    proper_nouns: bool
    min_count: Count
    max_vocabulary: MaxVocabulary
    count_over: Literal['all', 'train']
    train: SplitSize
    valid: SplitSize


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """`model.*`: which model, its order, and the shape of a network."""

    family: str
    n: Annotated[int, at_least(2)]
    m: Count
    h: CountOrZero
    direct: bool
    unigram_bias: bool
    dropout: Share
    layers: Count
    tied: bool
    output_dropout: ShareOrDefault
    word_dropout: Share
    variational: bool
    precision: Precision


@dataclasses.dataclass(frozen=True)
class RecurrentSettings:
    """`recurrent.*`: how rnn, gru, lstm and mogrifier are regularised."""

    weight_dropout: Share
    activation_penalty: NonNegative
    slowness_penalty: NonNegative


@dataclasses.dataclass(frozen=True)
class MogrifierSettings:
    """`mogrifier.*`: the settings of the Mogrifier LSTM beside `recurrent.*`."""

    rounds: Annotated[int, Check('must be at least 1 and at most 16', lambda value: 1 <= value <= 16)]


@dataclasses.dataclass(frozen=True)
class ResidualSettings:
    """`residual.*`: the settings of the residual window network beside `model.*`."""

    averages: Annotated[int, Check('must be at least 0 and at most 16', lambda value: 0 <= value <= 16)]
    expansion: Count


@dataclasses.dataclass(frozen=True)
class SensesSettings:
    """`senses.*`: the settings of the window network with several features a word."""

    number: Count


@dataclasses.dataclass(frozen=True)
class PriorSettings:
    """`prior.*`: which words are known to be alike, and how strongly their features are drawn to each other."""

    kind: str
    strength: NonNegative


@dataclasses.dataclass(frozen=True)
class NgramSettings:
    """`ngram.*`: further settings of count-based models."""

    delta: Annotated[float, Check('must be at least 0 and at most 1e6', lambda value: 0 <= value <= 1e6)]
    classes: Count
    prune: str
    bits: Annotated[int, Check('must be 0 (64-bit numbers), 8 or 16', lambda value: value in (0, 8, 16))]


@dataclasses.dataclass(frozen=True)
class OutputSettings:
    """`output.*`: how the loss over all words is computed in training; evaluation is always exact and float32."""

    kind: str
    precision: Precision
    block_size: Count
    samples: Count
    proposal: Literal['unigram', 'log_uniform']
    exact_target: bool
    min_ess: NonNegative
    adaptation: NonNegative
    num_shortlist: CountOrZero
    classes: Count
    tree: str


@dataclasses.dataclass(frozen=True)
class PaperOptimizerSettings:
    """`optimizer.paper.*`: the rates of sections 2.1 and 4.2, per word."""

    epsilon_0: Positive
    r: NonNegative
    decay: NonNegative


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """`optimizer.*`: how the penalised negative log-likelihood is minimised."""

    name: Literal['sgd', 'adam', 'rowwise_adam', 'adagrad', 'paper']
    learning_rate: Positive
    schedule: Literal['constant', 'linear', 'cosine']
    warmup: CountOrZero
    momentum: Share
    row_adaptivity: Annotated[float, Check('must be at least 0 and at most 1', lambda value: 0 <= value <= 1)]
    clip_norm: NonNegative
    decay: NonNegative
    paper: PaperOptimizerSettings

    @property
    def weight_decay(self) -> float:
        """The decay in force: the paper's under optimizer.name=paper."""
        return self.paper.decay if self.name == 'paper' else self.decay

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is the gradient times a rate, so that each row of a parameter can be updated separately."""
        return self.name == 'paper' or (self.name == 'sgd' and not self.momentum and not self.clip_norm)

    @property
    def is_rowwise(self) -> bool:
        """Whether the state of a row of a table is one number, so that rows can be updated separately."""
        return self.name == 'rowwise_adam'


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """`train.*`: how long, in what batches, how often evaluated and saved."""

    batch_size: Count
    average: Share
    suffix_smoothing: NonNegative
    calibrate: bool
    epochs: Count
    patience: Count
    evaluate_every: CountOrZero
    checkpoint_every: Count
    log_every: Count
    steps_per_execution: Count
    bptt_length: Count
    input: Literal['auto', 'device', 'mapped']


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """`eval.*`: how the finished model is evaluated."""

    train_words: CountOrZero
    words: CountOrZero


@dataclasses.dataclass(frozen=True)
class ParallelSettings:
    """`parallel.*`: over how many devices training is divided; its result does not depend on it."""

    data: NumDevices
    model: NumDevices
    mode: Literal['shard_map', 'pmap']

    def __post_init__(self) -> None:
        both = self.data == self.model == -1
        require(not both, 'parallel.model', self.model, 'must be 1 or more with parallel.data=-1')


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """`paper.*`: the perplexities that the paper prints for this row; 0 where it prints none."""

    row: str
    train: NonNegative
    valid: NonNegative
    test: NonNegative


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on."""

    name: Name
    seed: CountOrZero
    corpus: CorpusSettings
    model: ModelSettings
    recurrent: RecurrentSettings
    mogrifier: MogrifierSettings
    residual: ResidualSettings
    senses: SensesSettings
    prior: PriorSettings
    ngram: NgramSettings
    output: OutputSettings
    optimizer: OptimizerSettings
    train: TrainSettings
    eval: EvalSettings
    parallel: ParallelSettings
    paper: PaperRow


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config and freezes it.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary like that of a `config.json`, also of an earlier
            version.

    Returns:
        The settings. `runs.experiment.load_settings` checks them against the registries as well.

    Raises:
        BadInput: A key is unknown or missing, or has a wrong type or an impossible value.
    """
    return build(Settings, translate(flatten(config)))


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads, as `config.json` holds it."""
    return dataclasses.asdict(settings)


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`."""
    return build(Settings, {**flatten(to_dict(settings)), **changes})
