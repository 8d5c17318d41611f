"""A Neural Probabilistic Language Model (Bengio et al., JMLR 3, 2003) in JAX.

Import the modules, not names from here: `from nplm_jax import corpora, nplm`.
"""

__version__ = '0.1.0'
