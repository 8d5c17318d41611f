"""A comparison of words, subwords and bytes as the tokens of a small model, at equal CPU time."""
