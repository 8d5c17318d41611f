"""How small an n-gram model can become, and mixtures of n-gram models as one model."""
