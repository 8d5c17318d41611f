"""A study of how well the surprisals of models predict reading times."""
