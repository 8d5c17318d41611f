"""Output layers, which map features to P(w) and the training loss."""
