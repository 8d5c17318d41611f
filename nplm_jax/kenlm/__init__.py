"""KenLM's Python interface for all models of this package: ARPA files, runs, packed models and mixtures."""

from nplm_jax.kenlm.model import FullScoreReturn, LanguageModel, Model, State

__all__ = ['FullScoreReturn', 'LanguageModel', 'Model', 'State']
