"""Training: the training loop, updates, optimizers and checkpoints."""
