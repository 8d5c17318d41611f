"""From features to P(w) and its training loss."""
