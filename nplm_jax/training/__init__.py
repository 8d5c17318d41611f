"""Trains networks. Contains the training loop, updates, optimizers and checkpoints."""
