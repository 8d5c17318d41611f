"""Lists the peak performance of accelerators, according to the vendors' public specifications.

This module does not import JAX.
"""

from collections.abc import Iterable
from typing import NamedTuple

_TPU = 'https://docs.cloud.google.com/tpu/docs/'
_A100 = 'https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf'


class Chip(NamedTuple):
    """The specification of an accelerator that JAX represents as a single device.

    Attributes:
        name: The product name.
        flops: Peak FLOP/s for dense bfloat16 matrix products with float32 accumulation.
        memory: Memory size [bytes].
        memory_bandwidth: Memory bandwidth [bytes/s].
        source: The URL of the vendor's specification.
    """

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    source: str


_V4 = Chip('TPU v4', 275e12, 32e9, 1.2e12, f'{_TPU}v4')
_V5E = Chip('TPU v5e', 197e12, 16e9, 819e9, f'{_TPU}v5e')
_V5P = Chip('TPU v5p', 459e12, 95e9, 2765e9, f'{_TPU}v5p')
_V6E = Chip('TPU v6e', 918e12, 32e9, 1638e9, f'{_TPU}v6e')
_H100 = Chip('H100 SXM', 989e12, 80e9, 3.35e12, 'https://www.nvidia.com/en-us/data-center/h100/')
_H200 = Chip('H200 SXM', 989e12, 141e9, 4.8e12, 'https://www.nvidia.com/en-us/data-center/h200/')
CHIPS = {  # JAX's `Device.device_kind` -> chip
    'TPU v4': _V4,
    'TPU v5 lite': _V5E,
    'TPU v5e': _V5E,
    'TPU v5': _V5P,
    'TPU v5p': _V5P,
    'TPU v6 lite': _V6E,
    'TPU v6e': _V6E,
    'NVIDIA H100 80GB HBM3': _H100,
    'NVIDIA H200': _H200,
    'NVIDIA A100-SXM4-40GB': Chip('A100 SXM 40 GB', 312e12, 40e9, 1555e9, _A100),
    'NVIDIA A100-SXM4-80GB': Chip('A100 SXM 80 GB', 312e12, 80e9, 2039e9, _A100),
}


def peak_flops(device_kinds: Iterable[str]) -> float | None:
    """Returns the total peak bfloat16 FLOP/s of devices, or None if the peak of any device is unknown, as for a CPU."""
    chips = [CHIPS.get(kind) for kind in device_kinds]
    known = [chip.flops for chip in chips if chip is not None]
    return sum(known) if len(known) == len(chips) else None
