"""Neural language models: the paper's network, its successors and mixtures."""
