"""What a program must not do, and how often it sends at most: counted by hand."""

from __future__ import annotations

from typing import Any

from experiments.cost.accelerator import hlo, programs
from nplm_jax.outputs.output_layer import SparseOutputLayer


def check(
    update: programs.Update, program: hlo.Program, sent: list[dict[str, Any]], data: int, model: int
) -> dict[str, Any]:
    """Returns how often a program does what it must not, and how often it sends.

    Args:
        update: What was compiled.
        program: The program.
        sent: Its collectives, per update.
        data: Devices that divide the batch.
        model: Devices that divide the words.
    """
    V = -(-update.network.vocabulary_size // model)
    products = [arrays for arrays in program.products() if any(_is_over(V, array) for array in arrays)]
    collectives = [i for i, _, _ in program.run() if i.kind == 'all-gather']
    return {
        'products': len(products),
        'float32_products': sum(all(array.kind == 'f32' for array in arrays) for arrays in products),
        'gathered_tables': sum(any(_is_over(V * model, array) for array in i.arrays) for i in collectives),
        'sent': sum(each['count'] for each in sent),
        'by_hand': at_most(update, data, model),
    }


def at_most(update: programs.Update, data: int, model: int) -> int:
    """Returns how many collectives an update needs at most, each for one array: XLA joins several into one.

    With gradients of whole tables, the gradient of each parameter and the NLL are summed over the batch; over the words
    each block of examples takes the largest score, the sum of E and the target's score, and once the gradients of the
    output layer's inputs are summed. With sparse updates the batch is divided over all devices, and the gradient of
    each parameter, or of the rows of a table, and the NLL are summed. Where the words are divided, the rows of the
    examples and of the samples come from their owners, and of each output table the second moments of these rows, and
    the sum and the number of all moments.
    """
    network, summed = update.network, update.num_parameters + 1
    if data * model == 1:
        return 0
    if isinstance(network.output, SparseOutputLayer):
        return summed + (len(network.tables.words) * 5 if model > 1 else 0)
    blocks = -(-update.batch_size // data // network.output.block_size)
    return (summed if data > 1 else 0) + (3 * blocks + 1 if model > 1 else 0)


def _is_over(num_words: int, array: hlo.Array) -> bool:
    """Whether an array is a matrix with one side for the words, which may be padded."""
    return len(array.shape) > 1 and any(num_words <= size < num_words + 8 for size in array.shape)
