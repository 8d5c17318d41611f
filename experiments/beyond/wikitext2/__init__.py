"""A comparison with published perplexities on the words of WikiText-2."""
