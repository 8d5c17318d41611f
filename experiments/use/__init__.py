"""Applications of models: reading times, minimal pairs, word similarity and decoding."""
