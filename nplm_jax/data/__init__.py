"""Converts text to token ids and batches. Defines corpora, tokenizers, vocabularies and datasets."""
