"""Studies of the paper's tables, parallel training, main claim and section 5."""
