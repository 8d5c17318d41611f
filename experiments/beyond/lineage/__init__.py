"""From the network of 2003 to the Transformer, one idea at a time, with five minutes of training each."""
