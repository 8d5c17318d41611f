"""Checks around an optimizer named by import path: its errors, its state and the layout of its matrices.

The function gets the run's learning rate and returns an Optax transformation, whose updates are applied as they are. It
is called in every trace, since the rate is an argument of the compiled update. Matrices are (in, out) for it, and have
the weight decay of `optimizer.decay` alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from nplm_jax.config import plugins
from nplm_jax.distributed.sharding import PADDING_BIAS
from nplm_jax.outputs.output_layer import Params
from nplm_jax.utils.errors import require

Factory: TypeAlias = Callable[[Any], optax.GradientTransformationExtraArgs]  # of a rate: a number or a schedule
_ALLOWED = 'must work with a traced number or schedule as learning_rate, and with gradients alone'


def load(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Factory:
    """Returns the function that `optimizer.name` names, with its options, guarded.

    Raises:
        BadInput: When it is called: it fails, or returns something else.
    """

    def make(rate: Any) -> optax.GradientTransformationExtraArgs:
        with plugins.failure_as_bad_input('optimizer.name', name, _ALLOWED):
            rule = factory(learning_rate=rate, **options)
        allowed = 'must return an optax.GradientTransformation'
        require(isinstance(rule, optax.GradientTransformation), 'optimizer.name', name, allowed)
        rule = optax.with_extra_args_support(rule)

        def init(params: Params) -> optax.OptState:
            state = rule.init(params)
            dtypes = [leaf.dtype for leaf in jax.tree.leaves(state) if hasattr(leaf, 'dtype')]
            has_key = any(jnp.issubdtype(dtype, jax.dtypes.prng_key) for dtype in dtypes)
            allowed = 'must keep its random keys as jax.random.key_data, which can be saved'
            require(not has_key, 'optimizer.name', name, allowed)
            return state

        def update(*args: Any, **extra: Any) -> tuple[Any, Any]:
            with plugins.failure_as_bad_input('optimizer.name', name, _ALLOWED):
                return rule.update(*args, **extra)

        return optax.GradientTransformationExtraArgs(init, update)

    return make


def transformation(
    make: Factory, rate: Any, decay: Callable[[jax.Array], Any], rows_are_outputs: tuple[str, ...]
) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation of a plug-in, with its matrices as (in, out), and with weight decay.

    Weight decay multiplies every matrix by 1 - decay(step), and also the copy of it in the state of a schedule-free
    optimizer, from which the next matrix is made.

    Args:
        make: The plug-in.
        rate: Its learning rate, a number or a schedule.
        decay: The function step -> learning rate times coefficient.
        rows_are_outputs: The names of the matrices that are (out, in): `Tables.units`.
    """
    rule = make(rate)

    def init(params: Params) -> optax.OptState:
        return rule.init(_in_by_out(params, rows_are_outputs))

    def update(
        updates: Any, state: optax.OptState, params: Params | None = None, *, step: jax.Array, **extra: Any
    ) -> tuple[Any, optax.OptState]:
        updates, params = (_in_by_out(tree, rows_are_outputs) for tree in (updates, _without_padding(params)))
        share = decay(step)

        def shrink(new: jax.Array, old: jax.Array) -> jax.Array:
            return new - share * old if new.ndim > 1 else new

        def shrink_copies(new: Any, old: Any) -> Any:
            return new._replace(z=jax.tree.map(shrink, new.z, old.z)) if _is_schedule_free(new) else new

        updates, new_state = rule.update(updates, state, params, step=step, **extra)
        updates = jax.tree.map(shrink, updates, params)
        new_state = jax.tree.map(shrink_copies, new_state, state, is_leaf=_is_schedule_free)
        return _in_by_out(updates, rows_are_outputs), new_state

    return optax.GradientTransformationExtraArgs(init, update)


def _without_padding(params: Params | None) -> Params | None:
    """Returns parameters in which the biases of the words that pad the vocabulary are 0, for rules that read norms."""
    return jax.tree.map(lambda x: jnp.where(x == PADDING_BIAS, 0, x) if x.ndim == 1 else x, params)


def evaluation_params(opt_state: optax.OptState, params: Params, rows_are_outputs: tuple[str, ...]) -> Params:
    """Returns the parameters to evaluate: `optax.contrib.schedule_free_eval_params` where the state has them."""
    for state in filter(_is_schedule_free, jax.tree.leaves(opt_state, is_leaf=_is_schedule_free)):

        def of_leaf(z: Any, param: jax.Array, state: Any = state) -> jax.Array:
            if _is_masked(z):
                return param
            return optax.contrib.schedule_free_eval_params(state._replace(z=z), param)

        params = jax.tree.map(of_leaf, _in_by_out(state.z, rows_are_outputs), params, is_leaf=_is_masked)
    return params


def averages(opt_state: optax.OptState) -> bool:
    """Returns whether an optimizer's state has parameters of its own to evaluate; see `evaluation_params`."""
    return any(map(_is_schedule_free, jax.tree.leaves(opt_state, is_leaf=_is_schedule_free)))


def _is_schedule_free(state: Any) -> bool:
    return isinstance(state, optax.contrib.ScheduleFreeState)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _in_by_out(tree: Any, rows_are_outputs: tuple[str, ...]) -> Any:
    """Transposes the matrices of these names; its own inverse."""

    def transpose(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        return jnp.swapaxes(leaf, -1, -2) if getattr(path[-1], 'key', None) in rows_are_outputs else leaf

    return jax.tree.map_with_path(transpose, tree)
