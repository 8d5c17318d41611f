"""Output layers: from features to P(w) and the training loss."""
