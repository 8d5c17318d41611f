"""Model-agnostic inference: perplexity, scoring, generation."""
