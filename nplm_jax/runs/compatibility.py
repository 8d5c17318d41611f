"""Checks that the components of a run are compatible with each other and with the other settings."""

from nplm_jax.config.settings import Settings, components
from nplm_jax.data import corpora
from nplm_jax.models.body import reads_lines
from nplm_jax.ngram.estimators import Estimator
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.runs.network_from_settings import check_scorer
from nplm_jax.runs.run_inputs import teacher_of
from nplm_jax.training.optimizers import PaperRule
from nplm_jax.utils.errors import require


def validate(settings: Settings) -> None:
    """Checks each component, and checks that the components are compatible.

    Raises:
        BadInput: A combination is invalid. The error names the key, its value and the allowed values.
    """
    corpora.check_settings(settings.corpus)
    for component in components(settings).values():
        component.check()
    if settings.corpus.context == 'line':
        _check_lines(settings)
    if settings.is_neural:
        _check_network(settings)


def _check_lines(settings: Settings) -> None:
    """Raises BadInput if the model or the tokens do not support `corpus.context=line`."""
    model, tokenizer = settings.model, settings.corpus.tokenizer
    has_marks = tokenizer.boundary_tokens and not tokenizer.is_lossless
    can_read = model.reads_lines if isinstance(model, Estimator) else reads_lines(model)
    require(can_read, 'corpus.context', 'line', f'must be stream for model.family={model.name}')
    require(has_marks, 'corpus.context', 'line', 'requires corpus.boundary_tokens=True and word tokens')


def _check_network(settings: Settings) -> None:
    """Raises BadInput if the network does not support the batch size, a teacher or the optimizer."""
    body, output, rule = settings.model, settings.output, settings.optimizer
    check_scorer(body, output)
    batch_size, bptt_length = settings.train.batch_size, body.layout.bptt_length
    allowed = f'must be a multiple of model.bptt_length={bptt_length}'
    require(batch_size % bptt_length == 0, 'train.batch_size', batch_size, allowed)
    allowed, divides_words = 'must be 1 if output.teacher is set and output.kind=full', settings.parallel.model != 1
    is_divided = divides_words and bool(teacher_of(settings)) and not isinstance(output, SparseOutputLayer)
    require(not is_divided, 'parallel.model', settings.parallel.model, allowed)
    is_papers = isinstance(rule, PaperRule) and body.layout.over_streams
    require(not is_papers, 'optimizer.name', rule.name, f'is not supported for model.family={body.name}')
