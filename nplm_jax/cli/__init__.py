"""Commands for trained models: python -m nplm_jax.cli COMMAND."""
