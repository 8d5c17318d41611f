"""What the network learnt of words."""
