"""One experiment from config to results, and many of them."""
