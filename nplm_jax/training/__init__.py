"""Training: objective, optimizers, updates, the training loop, checkpoints."""
