"""Reads run folders, and presents their results as tables, figures, metrics and model cards."""
