"""Runs lm-evaluation-harness on models trained with nplm-jax: `python -m nplm_jax.lm_eval run --model nplm ...`."""

import sys

from nplm_jax.utils.errors import BadInput

try:
    from nplm_jax.apps.evaluation.harness import NplmLM
except BadInput as error:  # raised if the package lm_eval is not installed
    if __name__ != '__main__':
        raise
    sys.exit(str(error))

__all__ = ['NplmLM']

if __name__ == '__main__':
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except BadInput as error:
        sys.exit(str(error))
