"""Words, subwords and bytes as the tokens of a small model, at equal processor time."""
