"""Evaluates trained models with lm-evaluation-harness."""
