"""The ideas of the paper's section 5, tested on Brown."""
