"""What spreading over devices costs: section 3."""
