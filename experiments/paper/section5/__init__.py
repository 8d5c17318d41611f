"""The ideas of the paper's section 5, each tried on Brown."""
