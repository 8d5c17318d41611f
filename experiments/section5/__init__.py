"""The ideas of the paper's section 5."""
