"""What a chip can do at most, from its maker's public figures. Imports no JAX."""

from collections.abc import Iterable
from typing import NamedTuple

_TPU = 'https://docs.cloud.google.com/tpu/docs/'
_A100 = 'https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf'


class Chip(NamedTuple):
    """The figures of one device of JAX.

    Attributes:
        name: Its name.
        flops: Peak bfloat16 FLOP/s of dense products, summed in float32.
        memory: Bytes of memory.
        memory_bandwidth: Bytes/s between the memory and the cores.
        source: Where its maker gives these figures.
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
CHIPS = {  # by `Device.device_kind` of JAX
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
    """Returns the peak bfloat16 FLOP/s of some devices together; None where that of one is unknown, as of a CPU."""
    chips = [CHIPS.get(kind) for kind in device_kinds]
    known = [chip.flops for chip in chips if chip is not None]
    return sum(known) if len(known) == len(chips) else None
