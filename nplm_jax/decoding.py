"""The public interface of `nplm_jax.apps.decoding`: CTC beam search with any model, with or without a lexicon.

The names in upper case are constants that `transformers` imports from pyctcdecode.
"""

from nplm_jax.apps.decoding.ctcdecoder import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_HOTWORD_WEIGHT,
    DEFAULT_MIN_TOKEN_LOGP,
    DEFAULT_PRUNE_LOGP,
    BatchBeam,
    BeamSearchDecoderCTC,
    OutputBeam,
    build_ctcdecoder,
)
from nplm_jax.apps.decoding.decoder import Decoder, Hypothesis, Weights, tune, word_error_rate
from nplm_jax.apps.decoding.labels import BLANK_TOKEN_PTN, UNK_TOKEN, UNK_TOKEN_PTN
from nplm_jax.apps.decoding.lexicon import Lexicon

__all__ = [
    'BLANK_TOKEN_PTN',
    'DEFAULT_BEAM_WIDTH',
    'DEFAULT_HOTWORD_WEIGHT',
    'DEFAULT_MIN_TOKEN_LOGP',
    'DEFAULT_PRUNE_LOGP',
    'UNK_TOKEN',
    'UNK_TOKEN_PTN',
    'BatchBeam',
    'BeamSearchDecoderCTC',
    'Decoder',
    'Hypothesis',
    'Lexicon',
    'OutputBeam',
    'Weights',
    'build_ctcdecoder',
    'tune',
    'word_error_rate',
]
