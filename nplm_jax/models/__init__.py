"""Language models: the paper, its network, recurrent ones, mixtures and n-grams."""
