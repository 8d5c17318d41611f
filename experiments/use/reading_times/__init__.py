"""Prediction of reading times from the surprisals of models."""
