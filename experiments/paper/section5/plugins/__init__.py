"""The bodies, the output layer and the optimizer of section 5, which a config names by import path."""
