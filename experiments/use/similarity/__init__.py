"""Word features against human judgements of similarity, and analogies."""
