"""The speed and perplexity of networks trained with cheaper gradients."""
