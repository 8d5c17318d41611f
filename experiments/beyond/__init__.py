"""Later models, losses and vocabularies, measured on the paper's task."""
