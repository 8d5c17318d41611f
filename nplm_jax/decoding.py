"""The public names of nplm_jax.apps.decoding: CTC beam search with any model, with a lexicon and without one."""

from nplm_jax.apps.decoding.ctcdecoder import BatchBeam, BeamSearchDecoderCTC, OutputBeam, build_ctcdecoder
from nplm_jax.apps.decoding.decoder import (
    END,
    Decoder,
    Hypothesis,
    Lexicon,
    Weights,
    check_emissions,
    tune,
    word_error_rate,
)

__all__ = [
    'END',
    'BatchBeam',
    'BeamSearchDecoderCTC',
    'Decoder',
    'Hypothesis',
    'Lexicon',
    'OutputBeam',
    'Weights',
    'build_ctcdecoder',
    'check_emissions',
    'tune',
    'word_error_rate',
]
