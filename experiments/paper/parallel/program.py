"""Counts of the bytes all-reduced and of the operations per device, from the compiled update for a mesh."""

from __future__ import annotations

import dataclasses
import math
import re

import jax
import jax.numpy as jnp

from configs import default
from nplm_jax.config import settings as config_lib
from nplm_jax.config.sections import ParallelSettings
from nplm_jax.distributed.sharding_from_settings import make_sharding
from nplm_jax.models.body import Body
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.training import step as step_lib
from nplm_jax.utils.errors import BadInput

BYTES = {'f32': 4, 's32': 4, 'u32': 4, 'f64': 8, 'bf16': 2, 'pred': 1}
OTHERS = ('all-gather', 'all-to-all', 'collective-permute', 'reduce-scatter', 'collective-broadcast')


def compile_update(model: Body, num_words: int, batch_size: int, data: int, model_devices: int) -> jax.stages.Compiled:
    """Compiles one update for a mesh. The batch is a single block, so that no loop contains communication.

    Args:
        model: The shape of the network.
        num_words: The number of words, V.
        batch_size: The number of words per update.
        data: The number of devices along the batch.
        model_devices: The number of devices along the words.
    """
    one_block = {'train.batch_size': batch_size, 'output.block_size': batch_size}
    settings = config_lib.replace(config_lib.from_config(default.get_config()), one_block)
    settings = dataclasses.replace(settings, model=model)
    mesh = make_sharding(ParallelSettings(data, model_devices, 'shard_map'), batch_size, batch_size, False)
    program = make_program(settings, network_from_settings(settings, num_words), 1, mesh)
    state = step_lib.init_state(program, settings.seed, settings.optimizer.hyperparams)
    tokens_T = mesh.replicate(jnp.zeros(2 * batch_size, jnp.int32))
    inputs = step_lib.StepInputs(tokens_T)
    return step_lib.execute_steps.lower(program, state, tokens_T, 0, 1, inputs).compile()


def all_reduced_bytes(text: str) -> int:
    """Returns the total size of the results of all all-reduces in the text of a compiled program, in bytes.

    Raises:
        ValueError: The program contains other collectives, which would not be counted.
    """
    if others := [name for name in OTHERS if re.search(rf'\s{name}(-start)?\(', text)]:
        raise ValueError(f'the program also contains {", ".join(others)}')
    return sum(BYTES[kind] * math.prod(shape) for kind, shape in sent_arrays(text))


def sent_arrays(text: str) -> list[tuple[str, list[int]]]:
    """Returns the type and shape of every result of a collective in the text of a compiled program."""
    results = re.findall(rf'= (\(.*?\)|\S+) (?:all-reduce|{"|".join(OTHERS)})(?:-start)?\(', text)
    arrays = re.findall(r'(\w+)\[([\d,]*)\]', ' '.join(results))
    return [(kind, [int(n) for n in shape.split(',') if n]) for kind, shape in arrays]


def measure(model: Body, num_words: int, batch_size: int, data: int, model_devices: int) -> dict[str, float]:
    """Counts the bytes all-reduced and the FLOPs per device and update in the compiled program.

    Args:
        model: The shape of the network.
        num_words: The number of words, V.
        batch_size: The number of words per update.
        data: The number of devices along the batch.
        model_devices: The number of devices along the words.
    """
    if data * model_devices > jax.device_count():
        raise BadInput(
            'devices', f'the mesh requires {data} x {model_devices} devices, but JAX has {jax.device_count()}'
        )
    compiled = compile_update(model, num_words, batch_size, data, model_devices)
    return {
        'bytes': all_reduced_bytes(compiled.as_text() or ''),
        'operations': (compiled.cost_analysis() or {})['flops'],
    }
