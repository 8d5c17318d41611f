"""Data pipeline from text to token ids: corpora, tokenizers, vocabularies, datasets and batches."""
