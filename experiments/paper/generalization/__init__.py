"""The paper's claim, tested alone: a grammar whose entropy is known."""
