"""Inference with any model: perplexity, scoring, generation and word features."""
