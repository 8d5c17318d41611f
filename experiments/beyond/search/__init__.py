"""Hyperparameter search, compared: TPE with pruning, random search and a grid."""
