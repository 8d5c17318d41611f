"""Count-based language models (section 4.1): estimation, ARPA files, pruning, quantization and storage."""
