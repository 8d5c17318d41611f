"""Adapts optimizers that are named by import path (plug-ins): checks their results and converts the layout of matrices.

A plug-in is a function that takes the learning rate of the run and returns an Optax transformation. The updates of this
transformation are applied without further scaling. JAX calls the plug-in whenever it traces an update, because the
learning rate is an argument of the compiled update. The transformation receives matrices as (in, out). Weight decay is
controlled only by `optimizer.decay`.
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

Factory: TypeAlias = Callable[[Any], optax.GradientTransformationExtraArgs]  # argument: the rate, a number or schedule
_ALLOWED = 'must accept a traced number or schedule as learning_rate, and require only gradients'


def load(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Factory:
    """Binds the options of a plug-in, and wraps it in checks of its results.

    Returns:
        A function that takes the learning rate and returns the plug-in's Optax transformation. It raises BadInput if
        the plug-in fails, or if the result is not an Optax transformation.
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
            allowed = 'must store random keys as jax.random.key_data, because typed keys cannot be saved'
            require(not has_key, 'optimizer.name', name, allowed)
            return state

        def update(*args: Any, **extra: Any) -> tuple[Any, Any]:
            with plugins.failure_as_bad_input('optimizer.name', name, _ALLOWED):
                return rule.update(*args, **extra)

        return optax.GradientTransformationExtraArgs(init, update)

    return make


def transformation(
    make: Factory, rate: Any, decay: Callable[[jax.Array], Any], out_in_matrices: tuple[str, ...]
) -> optax.GradientTransformationExtraArgs:
    """Wraps the transformation of a plug-in. The wrapper converts matrices to (in, out) and adds weight decay.

    Weight decay multiplies every matrix by 1 - decay(step). A schedule-free optimizer computes the next value of a
    matrix from a copy in its state, so this copy is multiplied by the same factor.

    Args:
        make: The plug-in, as returned by `load`.
        rate: The learning rate, a number or a schedule.
        decay: A function that returns the product of the learning rate and the decay coefficient at a step.
        out_in_matrices: The names of the matrices stored as (out, in); see `Tables.units`.
    """
    rule = make(rate)

    def init(params: Params) -> optax.OptState:
        return rule.init(_in_by_out(params, out_in_matrices))

    def update(
        updates: Any, state: optax.OptState, params: Params | None = None, *, step: jax.Array, **extra: Any
    ) -> tuple[Any, optax.OptState]:
        updates, params = (_in_by_out(tree, out_in_matrices) for tree in (updates, _without_padding(params)))
        share = decay(step)

        def shrink(new: jax.Array, old: jax.Array) -> jax.Array:
            return new - share * old if new.ndim > 1 else new

        def shrink_copies(new: Any, old: Any) -> Any:
            return new._replace(z=jax.tree.map(shrink, new.z, old.z)) if _is_schedule_free(new) else new

        updates, new_state = rule.update(updates, state, params, step=step, **extra)
        updates = jax.tree.map(shrink, updates, params)
        new_state = jax.tree.map(shrink_copies, new_state, state, is_leaf=_is_schedule_free)
        return _in_by_out(updates, out_in_matrices), new_state

    return optax.GradientTransformationExtraArgs(init, update)


def _without_padding(params: Params | None) -> Params | None:
    """Sets the biases of padding words to zero, because some rules depend on the norms of parameters."""
    return jax.tree.map(lambda x: jnp.where(x == PADDING_BIAS, 0, x) if x.ndim == 1 else x, params)


def evaluation_params(opt_state: optax.OptState, params: Params, out_in_matrices: tuple[str, ...]) -> Params:
    """Returns the parameters with which to evaluate the network.

    For a schedule-free optimizer, these are given by `optax.contrib.schedule_free_eval_params`. For all other
    optimizers, they are `params`.
    """
    for state in filter(_is_schedule_free, jax.tree.leaves(opt_state, is_leaf=_is_schedule_free)):

        def of_leaf(z: Any, param: jax.Array, state: Any = state) -> jax.Array:
            if _is_masked(z):
                return param
            return optax.contrib.schedule_free_eval_params(state._replace(z=z), param)

        params = jax.tree.map(of_leaf, _in_by_out(state.z, out_in_matrices), params, is_leaf=_is_masked)
    return params


def averages(opt_state: optax.OptState) -> bool:
    """Returns whether the optimizer is schedule-free, that is, whether it averages the parameters itself."""
    return any(map(_is_schedule_free, jax.tree.leaves(opt_state, is_leaf=_is_schedule_free)))


def _is_schedule_free(state: Any) -> bool:
    return isinstance(state, optax.contrib.ScheduleFreeState)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _in_by_out(tree: Any, out_in_matrices: tuple[str, ...]) -> Any:
    """Transposes the named matrices. The function is its own inverse."""

    def transpose(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        return jnp.swapaxes(leaf, -1, -2) if getattr(path[-1], 'key', None) in out_in_matrices else leaf

    return jax.tree.map_with_path(transpose, tree)
