"""The public name of nplm_jax.apps.evaluation.harness: `python -m nplm_jax.lm_eval run --model nplm ...`."""

from nplm_jax.apps.evaluation.harness import NplmLM

__all__ = ['NplmLM']

if __name__ == '__main__':
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
