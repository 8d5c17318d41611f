"""What words cost, from a million to hundreds of millions."""
