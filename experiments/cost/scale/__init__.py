"""What words cost: seconds, memory and disk from a million words on."""
