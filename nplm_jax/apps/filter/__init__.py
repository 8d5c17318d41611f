"""Filters documents by perplexity."""

COMMANDS = {'filter': ('command', 'filter documents in .jsonl, Parquet and text files by perplexity')}
