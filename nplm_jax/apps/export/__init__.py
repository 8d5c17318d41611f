"""Exports models to the formats of other tools."""

COMMANDS = {'export': ('command', 'export a model to ARPA, word2vec, npz, safetensors, ONNX or Hugging Face format')}
