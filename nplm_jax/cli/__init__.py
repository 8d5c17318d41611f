"""The commands."""

import os

_ACCELERATORS = ('/dev/nvidiactl', '/dev/kfd', '/dev/accel0', '/dev/vfio')  # of NVIDIA, AMD and Google

# XLA logs each compiled program that it loads from the cache as an error where LLVM avoids gathers (openxla/xla
# #44565). It reads the level before JAX is imported; '1' is what JAX sets. With an accelerator, errors are kept.
if os.environ.get('TF_CPP_MIN_LOG_LEVEL', '1') == '1' and not any(map(os.path.exists, _ACCELERATORS)):
    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
