"""Word features, compared with human judgements of similarity and tested by analogies."""
