"""Chips and topologies for which XLA can compile without the hardware."""

from __future__ import annotations

import dataclasses
import math
import os
from importlib import metadata
from typing import Any

from nplm_jax.training import chips

CHIPS = {
    'v5e': chips.CHIPS['TPU v5e'],
    'v5p': chips.CHIPS['TPU v5p'],
    'v6e': chips.CHIPS['TPU v6e'],
    'H100': chips.CHIPS['NVIDIA H100 80GB HBM3'],
}
# The properties of an H100 that XLA requires (openxla/xla #25919, jax-ml/jax #28376).
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84929347584
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA" device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 }
"""


@dataclasses.dataclass(frozen=True)
class Topology:
    """Connected chips.

    Attributes:
        chip: The name of the chip.
        shape: The number of chips along each axis of a TPU's torus, or the number of GPUs on one switch.
    """

    chip: str
    shape: tuple[int, ...]

    @property
    def num_devices(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    @property
    def is_gpu(self) -> bool:
        """Whether the chips are GPUs."""
        return len(self.shape) == 1

    @property
    def platform(self) -> str:
        """The name of the platform in JAX."""
        return 'gpu' if self.is_gpu else 'tpu'

    def devices(self) -> list[Any]:
        """Returns descriptions of devices for compilation. No program can run on these devices."""
        set_environment()
        from jax.experimental import topologies  # noqa: PLC0415 (the tables need no JAX)

        if self.is_gpu:
            shape = f'1x1x{self.num_devices}'
            found = topologies.get_topology_desc(platform='cuda', target_config=_H100, topology=shape)
        else:
            shape = 'x'.join(map(str, self.shape))
            found = topologies.get_topology_desc(platform='tpu', topology_name=f'{self.chip}:{shape}')
        return list(found.devices)


TOPOLOGIES = {
    'v5e-2x2': Topology('v5e', (2, 2)),
    'v5e-4x4': Topology('v5e', (4, 4)),
    'v5e-16x16': Topology('v5e', (16, 16)),
    'H100': Topology('H100', (1,)),
    'H100-8': Topology('H100', (8,)),
    'v6e-2x2': Topology('v6e', (2, 2)),
    'v5p-2x2x2': Topology('v5p', (2, 2, 2)),
}


def set_environment() -> None:
    """Sets the environment variables that let the compilers start without a chip. Compilers read them when loaded.

    Raises:
        ModuleNotFoundError: A compiler is not installed.
    """
    import jax  # noqa: PLC0415 (the tables need no JAX)

    for package in ('libtpu', 'jax-cuda12-plugin', 'jax-cuda12-pjrt'):
        metadata.version(package)
    os.environ |= {'TPU_SKIP_MDS_QUERY': '1', 'TPU_WORKER_HOSTNAMES': 'localhost', 'CUDA_VISIBLE_DEVICES': '-1'}
    os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'  # no process uses a chip, so several processes may compile
    os.environ['XLA_FLAGS'] = '--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false'
    jax.config.update('jax_platforms', 'cpu')
