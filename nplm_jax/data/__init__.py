"""Text to token ids: corpora, tokenizers, vocabularies, datasets and batches."""
