"""The import path of each part of a run by its name, such as `lstm` or `adam`; `parts` makes them."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of part.

    Attributes:
        default: The name of the default.
        meaning: What the key names.
        base: The class that plug-ins of this kind subclass; where plug-ins are functions, the class that wraps one.
        paths: The import path of each part by its name.
    """

    default: str
    meaning: str
    base: str
    paths: dict[str, str]


NETWORKS = {
    'nplm': 'nplm_jax.models.nplm:Window',
    'residual': 'nplm_jax.models.residual:Residual',
    'window_lstm': 'nplm_jax.models.window_lstm:WindowLstm',
    'rnn': 'nplm_jax.models.recurrent:Elman',
    'gru': 'nplm_jax.models.recurrent:Gru',
    'lstm': 'nplm_jax.models.recurrent:Lstm',
    'mogrifier': 'nplm_jax.models.mogrifier:Mogrifier',
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
}
PARTS = {
    'model.family': Kind(
        'nplm',
        'network, or count-based model (from maximum_likelihood on)',
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
    ),
    'optimizer.schedule': Kind(
        'cosine',
        'not of paper: learning rate after warm-up',
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
        'tokenizer (of a tokenized corpus, such as brown, words means whitespace)',
        'nplm_jax.data.tokenizers.tokenizer:Tokenizer',
        {
            'words': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'whitespace': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'lmplz': 'nplm_jax.data.tokenizers.words:WordTokenizer',
            'pieces': 'nplm_jax.data.tokenizers.pieces:PieceTokenizer',
            'characters': 'nplm_jax.data.tokenizers.byte_level:CharacterTokenizer',
            'bytes': 'nplm_jax.data.tokenizers.byte_level:ByteTokenizer',
        },
    ),
}

# The rates of optimizers for which the default, that of gradient descent, is too large.
_ADAPTIVE = {'optimizer.learning_rate': 0.003}
_RATES = {
    'adam': _ADAPTIVE,
    'adagrad': {'optimizer.learning_rate': 0.05},
    'rowwise_adam': {**_ADAPTIVE, 'optimizer.table_rate': 2.0},
}
RATES = 'optimizer.learning_rate', 'optimizer.table_rate'


def rates_of(key: str, name: str) -> dict[str, float]:
    """Returns the rates of an optimizer that differ from the defaults; none of another kind of part."""
    if key != 'optimizer.name':
        return {}
    return dict(_RATES.get('rowwise_adam' if ':' in name else name, {}))
