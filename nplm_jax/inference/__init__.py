"""What one does with any model: perplexity, scores, text, embeddings."""
