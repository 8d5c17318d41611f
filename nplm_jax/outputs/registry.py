"""Registry of output layers by `output.kind`. To add one, write its module in this package and add a line here.

A layer outside this package is a plug-in: `output.kind` is its import path, `package.module:Name`.
"""

from nplm_jax.config import OutputSettings
from nplm_jax.outputs.output_layer import OutputLayer
from nplm_jax.outputs.sampled import NoiseContrastive, SampledSoftmax
from nplm_jax.outputs.softmax import FullSoftmax
from nplm_jax.outputs.tree import TreeSoftmax
from nplm_jax.outputs.two_level import TwoLevelSoftmax
from nplm_jax.utils import plugins
from nplm_jax.utils.errors import require_one_of

OUTPUT_LAYERS: dict[str, type[OutputLayer]] = {
    'full': FullSoftmax,
    'sampled': SampledSoftmax,
    'nce': NoiseContrastive,
    'two_level': TwoLevelSoftmax,
    'tree': TreeSoftmax,
}


def output_layer_class(settings: OutputSettings) -> type[OutputLayer]:
    """Returns the class that `output.kind` names. Raises BadInput for an unknown name or a plug-in that is no layer."""
    if plugins.is_path(settings.kind):
        return plugins.load_class('output.kind', settings.kind, OutputLayer)
    require_one_of('output.kind', settings.kind, OUTPUT_LAYERS, f', or {plugins.IMPORT_PATH}')
    return OUTPUT_LAYERS[settings.kind]
