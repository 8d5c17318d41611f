"""The commands: `nplm COMMAND`, or `python -m nplm_jax.cli COMMAND`."""

import os

_ACCELERATORS = ('/dev/nvidiactl', '/dev/dxg', '/dev/kfd', '/dev/accel0', '/dev/vfio')  # of NVIDIA, WSL, AMD and Google

# On CPUs where LLVM avoids gathers, XLA logs an error for each compiled program loaded from the cache (openxla/xla
# #44565). The variable must be set before JAX is imported, because JAX sets it to '1'. On machines with an accelerator,
# errors are still logged.
if os.environ.get('TF_CPP_MIN_LOG_LEVEL', '1') == '1' and not any(map(os.path.exists, _ACCELERATORS)):
    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
