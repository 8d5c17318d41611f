"""Creates and validates the sharding that the settings `parallel.*` describe."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from nplm_jax.distributed.sharding import DATA, ONE_DEVICE, MeshSharding, make_mesh
from nplm_jax.utils.errors import require

if TYPE_CHECKING:
    from nplm_jax.config.sections import ParallelSettings


def make_sharding(
    settings: 'ParallelSettings',
    batch_size: int,
    num_streams: int,
    uses_sparse_updates: bool,
    devices: Sequence[jax.Device] = (),
    num_microbatches: int = 1,
) -> MeshSharding:
    """Returns the sharding that `parallel.*` describes, or ONE_DEVICE if both mesh axes have size 1.

    Args:
        settings: The settings `parallel.*`.
        batch_size: The number of examples per update.
        num_streams: The number of streams per update, which is equal to `batch_size` for window models.
        uses_sparse_updates: Whether the output layer has sparse updates. In this case, the batch is divided over all
            devices.
        devices: The devices. If empty, `jax.devices()` are used. To compile programs without executing them,
            descriptions of absent devices are sufficient; see `experiments/cost/accelerator`.
        num_microbatches: The number of microbatches per update (`train.accumulate`). Each microbatch is divided over
            the devices.

    Raises:
        BadInput: There are too few devices, or the batch cannot be divided evenly over them.
    """
    devices = devices or jax.devices()
    num_devices, num_processes = len(devices), jax.process_count()
    data, model = settings.data, settings.model
    more = '; on CPUs, set it with the environment variable JAX_NUM_CPU_DEVICES'
    hint = more if devices[0].platform == 'cpu' else ''
    allowed = f'must be at most {num_devices}, the number of devices{hint}'
    if data == -1:
        require(model <= num_devices, 'parallel.model', model, allowed)
        data = num_devices // model
    if model == -1:
        require(data <= num_devices, 'parallel.data', data, allowed)
        model = num_devices // data
    message = f'the product with parallel.model={model} must be at most {num_devices}, the number of devices{hint}'
    require(data * model <= num_devices, 'parallel.data', data, message)
    uses_all = num_processes == 1 or data * model == num_devices
    message = f'the product with parallel.model={model} must be {num_devices}, the number of devices of all processes'
    require(uses_all, 'parallel.data', data, message)
    num_shards = num_microbatches * (data * model if uses_sparse_updates else data)
    shares = 'the number of devices that share the batch'
    if num_microbatches > 1:
        shares = f'train.accumulate={num_microbatches} times {shares}'
    allowed = f'must be a multiple of {num_shards}, {shares}'
    require(batch_size % num_shards == 0, 'train.batch_size', batch_size, allowed)
    streams = f'the number of streams ({num_streams}), which is train.batch_size / model.bptt_length'
    allowed = f'{shares} ({num_shards}) must be a divisor of {streams}'
    require(num_streams % num_shards == 0, 'parallel.data', data, allowed)
    if settings.mode == 'pmap':
        require(
            model == 1,
            'parallel.model',
            model,
            'must be 1 with parallel.mode=pmap, which supports only data parallelism',
        )
        require(
            num_processes == 1,
            'parallel.mode',
            'pmap',
            f'must be shard_map when training with {num_processes} processes',
        )
    if data * model == 1:
        return ONE_DEVICE
    mesh = make_mesh(data, model, devices)
    return MeshSharding(mesh, settings.mode, batch_axes=mesh.axis_names if uses_sparse_updates else (DATA,))
