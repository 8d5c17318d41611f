"""Documents of a corpus, kept by the perplexity that a model gives them."""

COMMANDS = {'filter': ('command', 'documents of .jsonl, Parquet and text, kept by their perplexity')}
