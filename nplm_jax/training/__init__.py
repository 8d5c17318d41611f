"""How parameters come to be."""
