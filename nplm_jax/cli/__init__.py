"""The command-line interface, called as `nplm COMMAND` or `python -m nplm_jax.cli COMMAND`."""

import os

_ACCELERATORS = ('/dev/nvidiactl', '/dev/dxg', '/dev/kfd', '/dev/accel0', '/dev/vfio')  # NVIDIA, WSL, AMD, Google

# On CPUs where LLVM avoids gather instructions, XLA logs an error each time it loads a compiled program from the cache
# (openxla/xla #44565). The variable must be set before JAX is imported, because JAX sets it to '1'. Errors remain
# visible on machines with an accelerator.
if os.environ.get('TF_CPP_MIN_LOG_LEVEL', '1') == '1' and not any(map(os.path.exists, _ACCELERATORS)):
    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
