"""The public name of nplm_jax.apps.kenlm.model: KenLM's Python interface over any model."""

from nplm_jax.apps.kenlm.model import FullScoreReturn, LanguageModel, Model, State

__all__ = ['FullScoreReturn', 'LanguageModel', 'Model', 'State']
