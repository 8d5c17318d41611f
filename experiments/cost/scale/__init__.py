"""The time, memory and disk space that texts of a million words and more require."""
