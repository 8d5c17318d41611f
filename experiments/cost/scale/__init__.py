"""The cost of large texts: seconds, memory and disk for a million words and more."""
