"""Studies of later models, losses and vocabularies on the paper's task."""
