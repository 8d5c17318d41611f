"""How the parameters move: the paper's schedule, and Optax for the rest."""

from __future__ import annotations

import optax

from nplm_jax.config import OptimizerSettings, PaperSettings


def paper_schedule(paper: PaperSettings, batch_size: int) -> optax.Schedule:
    """epsilon_t = epsilon_0 / (1 + r t) with t in words (section 2.1), times the batch.

    The gradient is a mean over the batch; times batch_size it is the sum, at the paper's rate a word. A batch
    of one is the paper's update to the letter.
    """
    return lambda step: batch_size * paper.epsilon_0 / (1 + paper.r * step * batch_size)


def schedule(settings: OptimizerSettings, total_steps: int, batch_size: int) -> optax.Schedule:
    """The learning rate as a function of the update number."""
    if settings.name == 'paper':
        return paper_schedule(settings.paper, batch_size)
    rate, warmup = settings.learning_rate, settings.warmup
    after = max(total_steps - warmup, 1)
    main = {
        'constant': optax.constant_schedule(rate),
        'linear': optax.linear_schedule(rate, 0.0, after),
        'cosine': optax.cosine_decay_schedule(rate, after),
    }[settings.schedule]
    return optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), main], [warmup]) if warmup else main


def build(settings: OptimizerSettings, total_steps: int, batch_size: int) -> optax.GradientTransformation:
    """The Optax transformation that `settings` names. Weight decay is in the objective, not here."""
    rate = schedule(settings, total_steps, batch_size)
    if settings.name == 'paper':
        return optax.sgd(rate)
    update = {
        'sgd': lambda: optax.sgd(rate, momentum=settings.momentum or None),
        'adam': lambda: optax.adam(rate),
        'adagrad': lambda: optax.adagrad(rate),
    }[settings.name]()
    return optax.chain(optax.clip_by_global_norm(settings.clip_norm), update) if settings.clip_norm else update
