"""Checks of the parts of a run against each other and against the sections that belong to no part."""

from typing import Any

from nplm_jax.config import parts
from nplm_jax.config.settings import Settings
from nplm_jax.data import corpora
from nplm_jax.models.body import Body, reads_lines
from nplm_jax.ngram.estimators import Estimator
from nplm_jax.outputs.output_layer import OutputLayer, SparseOutputLayer
from nplm_jax.runs.network_from_settings import check_scorer
from nplm_jax.training.optimizers import PaperRule, Rule, ScheduledRule
from nplm_jax.utils.errors import require


def check(settings: Settings) -> None:
    """Checks that the parts exist, that they read all keys that differ from their defaults, and that they fit together.

    Raises:
        BadInput: It names the key, the value and what is allowed.
    """
    corpora.check_settings(settings.corpus)
    made = parts.make_all(settings)
    if settings.corpus.context == 'line':
        _check_lines(settings, made['model.family'])
    if parts.is_neural(settings.model.family):
        _check_network(settings, made['model.family'], made['output.kind'])
        _check_rule(settings, made['optimizer.name'], made)


def _check_lines(settings: Settings, model: Body | Estimator) -> None:
    """Raises BadInput if the model or the tokens cannot serve `corpus.context=line`."""
    tokenizer = corpora.make_tokenizer(settings.corpus)
    has_marks = tokenizer.boundary_tokens and not tokenizer.is_lossless
    can_read = model.reads_lines if isinstance(model, Estimator) else reads_lines(model)
    require(can_read, 'corpus.context', 'line', f'must be stream for model.family={settings.model.family}')
    require(has_marks, 'corpus.context', 'line', 'needs corpus.boundary_tokens=True, and tokens that are words')


def _check_network(settings: Settings, body: Body, output: OutputLayer) -> None:
    """Raises BadInput for a batch that streams do not divide, for divided words where there are teachers."""
    check_scorer(settings, body, output)
    batch_size, bptt_length = settings.train.batch_size, body.layout.bptt_length
    allowed = f'must be a multiple of model.bptt_length={bptt_length}'
    require(batch_size % bptt_length == 0, 'train.batch_size', batch_size, allowed)
    allowed, divides_words = 'must be 1 with output.teacher and output.kind=full', settings.parallel.model != 1
    is_divided = divides_words and settings.output.teacher and not isinstance(output, SparseOutputLayer)
    require(not is_divided, 'parallel.model', settings.parallel.model, allowed)


def _check_rule(settings: Settings, rule: Rule, made: dict[str, Any]) -> None:
    """Raises BadInput for a rule that does not fit the body or the schedule."""
    is_papers = isinstance(rule, PaperRule) and made['model.family'].layout.over_streams
    allowed = f'must not be {settings.optimizer.name} for model.family={settings.model.family}'
    require(not is_papers, 'optimizer.name', settings.optimizer.name, allowed)
    if isinstance(rule, ScheduledRule):
        rule.check_schedule(made['optimizer.schedule'])
