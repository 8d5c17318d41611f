"""Registry of components, which maps names such as `lstm` or `adam` to import paths.

To add a component, write a module and add a line to KINDS. Plug-ins, which are components outside this package, are
named by their import paths. This module does not import JAX; `component_class` imports the component's module.
"""

import functools
import importlib
from typing import Any, NamedTuple

from nplm_jax.config import plugins
from nplm_jax.config.plugins import is_file, is_path
from nplm_jax.utils.names import require_one_of


class Kind(NamedTuple):
    """A kind of component.

    Attributes:
        default: The name of the default component.
        meaning: The description of the key.
        base: The base class of plug-ins of this kind, or the wrapper class if plug-ins are functions.
        paths: The import path of each component by name.
        takes_functions: Whether plug-ins of this kind are functions rather than classes.
        of_file: The import path of the component that is used if the value of the key is the path of a file; empty if
            the value cannot be a file.
    """

    default: str
    meaning: str
    base: str
    paths: dict[str, str]
    takes_functions: bool = False
    of_file: str = ''


NETWORKS = {
    'nplm': 'nplm_jax.models.nplm:Window',
    'residual': 'nplm_jax.models.residual:Residual',
    'window_lstm': 'nplm_jax.models.window_lstm:WindowLstm',
    'rnn': 'nplm_jax.models.recurrent:Elman',
    'gru': 'nplm_jax.models.recurrent:Gru',
    'lstm': 'nplm_jax.models.recurrent:Lstm',
    'mogrifier': 'nplm_jax.models.mogrifier:Mogrifier',
    'attentive_mogrifier': 'nplm_jax.models.attentive_mogrifier:AttentiveMogrifier',
    'qrnn': 'nplm_jax.models.qrnn:Qrnn',
    'transformer': 'nplm_jax.models.transformer:Transformer',
    'transformer_n': 'nplm_jax.models.transformer_n:TransformerN',
}
NGRAM_MODELS = {
    'maximum_likelihood': 'nplm_jax.ngram.estimators:MaximumLikelihood',
    'add_delta': 'nplm_jax.ngram.estimators:AddDelta',
    'backoff': 'nplm_jax.ngram.estimators:Backoff',
    'interpolated': 'nplm_jax.ngram.estimators:Interpolated',
    'kneser_ney': 'nplm_jax.ngram.estimators:KneserNey',
    'modified_kneser_ney': 'nplm_jax.ngram.estimators:ModifiedKneserNey',
    'classes': 'nplm_jax.ngram.estimators:Classes',
    'arpa': 'nplm_jax.ngram.estimators:Imported',
}
KINDS = {  # by the config key that chooses a component; the component's own keys are in the same section
    'model.family': Kind(
        'nplm',
        'network, or count-based model (maximum_likelihood and all names after it)',
        'nplm_jax.models.body:Body',
        NETWORKS | NGRAM_MODELS,
    ),
    'output.kind': Kind(
        'full',
        'output layer and its training loss',
        'nplm_jax.outputs.output_layer:OutputLayer',
        {
            'full': 'nplm_jax.outputs.full:FullSoftmax',
            'sampled': 'nplm_jax.outputs.sampled:SampledSoftmax',
            'nce': 'nplm_jax.outputs.sampled:NoiseContrastive',
            'two_level': 'nplm_jax.outputs.two_level:TwoLevelSoftmax',
            'tree': 'nplm_jax.outputs.tree:TreeSoftmax',
        },
    ),
    'optimizer.name': Kind(
        'sgd',
        'optimizer',
        'nplm_jax.training.plugin_rule:PluginRule',
        {
            'sgd': 'nplm_jax.training.optimizers:GradientDescent',
            'adam': 'nplm_jax.training.optimizers:Adam',
            'rowwise_adam': 'nplm_jax.training.optimizers:RowwiseAdam',
            'adagrad': 'nplm_jax.training.optimizers:Adagrad',
            'paper': 'nplm_jax.training.optimizers:PaperRule',
        },
        takes_functions=True,
    ),
    'optimizer.schedule': Kind(
        'cosine',
        'schedule of the learning rate after warm-up',
        'nplm_jax.training.rate_schedules:RateSchedule',
        {
            'constant': 'nplm_jax.training.rate_schedules:Constant',
            'linear': 'nplm_jax.training.rate_schedules:Linear',
            'cosine': 'nplm_jax.training.rate_schedules:Cosine',
            'trapezoid': 'nplm_jax.training.rate_schedules:Trapezoid',
        },
    ),
    'corpus.tokens': Kind(
        'words',
        'tokenizer, or the path of a tokenizer.json or SentencePiece *.model file; for tokenized corpora such as '
        'brown, words and whitespace differ only in how they split other texts',
        'nplm_jax.data.tokenizers.tokenizer:Tokenizer',
        {
            'words': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'whitespace': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'lmplz': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'pieces': 'nplm_jax.data.tokenizers.pieces:PieceTokenizer',
            'characters': 'nplm_jax.data.tokenizers.byte_level:CharacterTokenizer',
            'bytes': 'nplm_jax.data.tokenizers.byte_level:ByteTokenizer',
        },
        of_file='nplm_jax.data.tokenizers.file_tokenizer:FileTokenizer',
    ),
}


def is_neural(family: str) -> bool:
    """Returns whether a `model.family` is a neural network; other families are count-based."""
    return family in NETWORKS or is_path(family)


def base_class(kind: str) -> Any:
    """Returns the base class of plug-ins of a kind; see `Kind.base`."""
    return _import(KINDS[kind].base)


def component_class(kind: str, name: str) -> type[Any]:
    """Returns the class of a component, or the class that wraps it if the component is a function plug-in.

    Args:
        kind: A key of KINDS, such as `model.family`.
        name: The name of the component, which is the value of this key.

    Raises:
        BadInput: The name is unknown, or the plug-in that it names cannot be imported or is of another kind.
    """
    if is_path(name) and KINDS[kind].takes_functions:
        return base_class(kind)
    if is_path(name):
        return plugins.load_class(kind, name, base_class(kind))
    if is_file(name) and KINDS[kind].of_file:
        return _import(KINDS[kind].of_file)
    files = ', a tokenizer.json or *.model' if KINDS[kind].of_file else ''
    require_one_of(kind, name, KINDS[kind].paths, f'{files}, or {plugins.IMPORT_PATH}')
    return _import(KINDS[kind].paths[name])


@functools.cache
def _import(path: str) -> Any:
    module, _, name = path.partition(':')
    return getattr(importlib.import_module(module), name)
