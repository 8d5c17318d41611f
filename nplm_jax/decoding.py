"""The public name of nplm_jax.apps.decoding.decoder: CTC beam search with any model."""

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

__all__ = ['END', 'Decoder', 'Hypothesis', 'Lexicon', 'Weights', 'check_emissions', 'tune', 'word_error_rate']
