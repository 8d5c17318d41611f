"""A study of word features, evaluated with human judgements of similarity and with analogies."""
