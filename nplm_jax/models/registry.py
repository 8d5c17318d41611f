"""Registry of network bodies by `model.family`. To add one, write its module in this package and add a line here.

A body outside this package is a plug-in: `model.family` is its import path, `package.module:Name`.
"""

from collections.abc import Iterable

from nplm_jax.config import ModelSettings, Settings
from nplm_jax.models.body import Body
from nplm_jax.models.mogrifier import Mogrifier
from nplm_jax.models.nplm import Window
from nplm_jax.models.recurrent import Elman, Gru, Lstm
from nplm_jax.models.residual import Residual
from nplm_jax.models.window_lstm import WindowLstm
from nplm_jax.outputs.registry import output_layer_class
from nplm_jax.utils import plugins
from nplm_jax.utils.errors import require_one_of

BODIES: dict[str, type[Body]] = {
    'nplm': Window,
    'residual': Residual,
    'window_lstm': WindowLstm,
    'rnn': Elman,
    'gru': Gru,
    'lstm': Lstm,
    'mogrifier': Mogrifier,
}


def is_network(settings: ModelSettings) -> bool:
    """Returns whether the model is trained by gradients; the others are estimated from counts."""
    return settings.family in BODIES or plugins.is_path(settings.family)


def body_class(settings: ModelSettings) -> type[Body]:
    """Returns the class that `model.family` names. Raises BadInput for a plug-in that is no body."""
    if plugins.is_path(settings.family):
        return plugins.load_class('model.family', settings.family, Body)
    return BODIES[settings.family]


def model_files(settings: Settings) -> dict[str, str]:
    """Returns the user's files that a model is made from, by config key. Raises BadInput for an unknown output."""
    return output_layer_class(settings.output).files(settings.output) if is_network(settings.model) else {}


def check_family(settings: ModelSettings, ngram_models: Iterable[str]) -> None:
    """Raises BadInput if `model.family` names neither a body nor a count-based model."""
    if not is_network(settings):
        require_one_of('model.family', settings.family, (*BODIES, *ngram_models), f', or {plugins.IMPORT_PATH}')
