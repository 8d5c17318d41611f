"""Run folders and their results as tables, figures, metrics and model cards."""
