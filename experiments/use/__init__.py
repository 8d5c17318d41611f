"""Models at work: reading times, minimal pairs, similarity of words, decoding."""
