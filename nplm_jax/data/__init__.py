"""Text to ids: corpora, tokenization, vocabulary, dataset."""
