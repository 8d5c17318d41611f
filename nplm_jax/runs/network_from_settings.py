"""Builds the network described by a config."""

import dataclasses
from typing import Any, cast

from nplm_jax import nn
from nplm_jax.config import settings as config
from nplm_jax.config.settings import Settings
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY
from nplm_jax.data.vocabulary import Vocabulary, numbered
from nplm_jax.models.body import Body
from nplm_jax.models.network import Network
from nplm_jax.models.stream_body import StreamBody
from nplm_jax.outputs.blockwise import default_block_size
from nplm_jax.outputs.output_layer import OutputLayer
from nplm_jax.outputs.softmax import LINEAR
from nplm_jax.runs import precision_choice
from nplm_jax.utils.errors import require

# The automatic value of each key. `resolve_auto` replaces these values when a run starts.
AUTO = {'model.precision': 'auto', 'output.precision': 'auto', 'output.block_size': 0}


def network_from_settings(settings: Settings, vocabulary: Vocabulary | int, platform: str | None = None) -> Network:
    """Returns the network described by a config.

    Args:
        settings: The settings.
        vocabulary: The vocabulary, or its size.
        platform: The platform of the training devices, for `StreamBody.on` and `resolve_auto`. None selects the
            platform of this process.

    Raises:
        BadInput: The settings are invalid or incompatible with the vocabulary.
    """
    settings = resolve_auto(settings, platform)
    body: Body = settings.model
    body = body.on(platform or nn.default_platform()) if isinstance(body, StreamBody) else body
    body.check()
    words = numbered(vocabulary) if isinstance(vocabulary, int) else vocabulary
    output: OutputLayer = settings.output.over(words)
    check_scorer(body, output)
    if body.scorer is not LINEAR:
        output = dataclasses.replace(cast(Any, output), scorer=body.scorer)
    line_end = None
    if settings.corpus.context == 'line':
        allowed = f'requires {PARAGRAPH_BOUNDARY} in the vocabulary; a body that reads streams must have lookback=0'
        takes_lines = PARAGRAPH_BOUNDARY in words.ids and not (body.layout.over_streams and body.layout.lookback)
        require(takes_lines, 'corpus.context', 'line', allowed)
        line_end = words.ids[PARAGRAPH_BOUNDARY]
    return Network(body, output, len(words), line_end)


def check_scorer(body: Body, output: OutputLayer) -> None:
    """Raises BadInput if the body has its own scorer and the output layer does not support one."""
    takes_scorer = 'scorer' in {field.name for field in dataclasses.fields(output)}
    allowed = f'must be sampled or nce for model.family={body.name}, which has its own scorer'
    require(body.scorer is LINEAR or takes_scorer, 'output.kind', output.name, allowed)


def resolve_auto(settings: Settings, platform: str | None = None) -> Settings:
    """Replaces the automatic values listed in `AUTO` with concrete values for a platform."""
    now, platform = config.to_flat(settings), platform or nn.default_platform()
    keys = [key for key, automatic in AUTO.items() if now.get(key, ...) == automatic]
    values: dict[str, Any] = {
        key: precision_choice.native_precision(platform) for key in keys if key != 'output.block_size'
    }
    if 'output.block_size' in keys:
        values['output.block_size'] = default_block_size(platform, (now | values)['output.precision'])
    return config.replace(settings, values)
