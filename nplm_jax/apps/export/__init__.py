"""Models as files of other tools."""

COMMANDS = {
    'export': ('command', 'a model as ARPA, word2vec, npz, safetensors, ONNX, or for Hugging Face transformers')
}
