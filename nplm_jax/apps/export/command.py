"""Exports a trained model to the format of another tool.

    nplm export runs/brown-kneser_ney_5 --to=arpa --output=kn5.arpa
    nplm export runs/brown-mlp9 --to=onnx --output=mlp9.onnx

Formats:
    arpa         back-off n-gram models, for KenLM and SRILM, with seven digits, <rare> as <unk>, and <p> as <s> and
                 </s>; KenLM gives each line the same score as `nplm score --end`. Without <p>, as for subwords,
                 characters and bytes, the file has no usable <s> and </s>: score its tokens with bos=False, eos=False
    word2vec     word features of a network in text format, or in binary format if FILE ends in .bin
    npz          all arrays, named after the paper's letters (C_VxM, H_KxP, ...), with words and config, for NumPy
    safetensors  the same arrays, with words and config as metadata (pip install safetensors)
    onnx         a network for any ONNX runtime; the graph maps the next word of each stream and a state to the
                 log-probabilities of all words and the next state; --int8 quantizes its matrices to 8 bits (see
                 docs/howto/export.md for the required packages)
    hf           a folder for Hugging Face transformers: a causal language model of any network family of nplm_jax, with
                 an incremental `generate`, a tokenizer and a model card (pip install safetensors tokenizers); if line
                 ends are tokens, start a text with bos_token_id of generation_config.json

Prints the path and the size of the output.
"""

import argparse
import functools
from collections.abc import Callable

from nplm_jax.apps.export import arrays, huggingface, onnx_graph
from nplm_jax.cli.outputs import require_new, require_writable
from nplm_jax.cli.parser import Parser
from nplm_jax.inference import embeddings
from nplm_jax.ngram import arpa
from nplm_jax.reporting import card, catalog
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_atomically, write_failure_as_bad_input

FORMATS = ('arpa', 'word2vec', 'npz', 'safetensors', 'onnx', 'hf')


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs(1)
    parser.add_argument('--to', choices=FORMATS, required=True, help='format of the output; required')
    parser.add_output(
        'file to write or, with --to=hf, folder to write; required', metavar='FILE', required=True, may_be_folder=True
    )
    parser.add_switch('--int8', "with --to=onnx, quantize the matrices to 8 bits (ONNX Runtime's dynamic quantization)")


def main(flags: argparse.Namespace) -> None:
    """Exports the model."""
    require(not flags.int8 or flags.to == 'onnx', '--int8', True, 'requires --to=onnx')
    path = expand('--output', flags.output)
    require_new('--output', flags, path)
    require_writable('--output', flags.output, is_folder=flags.to == 'hf')

    models = load_models(flags.runs)
    [model], vocabulary, settings = models.models, models.vocabulary, models.settings[0]
    writers: dict[str, Callable[..., None]] = {
        'npz': arrays.write_npz,
        'safetensors': arrays.write_safetensors,
        'onnx': functools.partial(onnx_graph.write_onnx, int8=flags.int8),
        'hf': huggingface.write_folder,
    }
    reads_lines = getattr(getattr(model, 'network', None), 'line_end', None) is not None
    allowed = 'must be npz, safetensors or word2vec for networks with corpus.context=line'
    require(not (reads_lines and flags.to in ('onnx', 'hf')), '--to', flags.to, allowed)
    with write_failure_as_bad_input('--output', path):
        if flags.to in writers:
            writers[flags.to](model, vocabulary, settings, path)
            if flags.to == 'hf':
                run = catalog.read_run(catalog.expand_run(flags.runs[0]))
                write_atomically(path / card.FILE, card.make(run, hugging_face=True))
        elif flags.to == 'word2vec':
            features = models.word_features()
            require(bool(features), '--to', flags.to, f'model.family={settings.model.name} has no word features')
            embeddings.write_word2vec(vocabulary, features[0][1], path, path.suffix == '.bin')
        else:
            [backoff] = models.backoff_models()
            arpa.write(backoff, vocabulary, path)
        files = [path] if path.is_file() else path.iterdir()
        print(f'{path}: {sum(file.stat().st_size for file in files):,} bytes')
