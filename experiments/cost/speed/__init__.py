"""How fast the pieces are."""
