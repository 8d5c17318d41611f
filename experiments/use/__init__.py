"""Studies of applications: reading times, minimal pairs, word similarity and decoding."""
