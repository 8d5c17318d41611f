"""Speed of the components."""
