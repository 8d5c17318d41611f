"""The public names of nplm_jax.apps.decoding: CTC beam search with any model, with a lexicon and without one."""

from nplm_jax.apps.decoding.ctcdecoder import BatchBeam, BeamSearchDecoderCTC, OutputBeam, build_ctcdecoder
from nplm_jax.apps.decoding.decoder import Decoder, Hypothesis, Weights, tune, word_error_rate
from nplm_jax.apps.decoding.lexicon import Lexicon

__all__ = [
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
