"""Studies of the speed of the components."""
