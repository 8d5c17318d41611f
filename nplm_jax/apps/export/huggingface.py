"""Exports networks to Hugging Face transformers, as folders with config, weights, tokenizer and PyTorch code.

Dims: V words, M features per word, K hidden units, P inputs of the hidden layer, F inner units of a layer, D inputs of
a cell, G gate units.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nplm_jax.apps.export.word_tokenizers import special_tokens, word_tokenizer
from nplm_jax.config.registry import KINDS, component_class
from nplm_jax.config.settings import Settings
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.tokenizers.file_tokenizer import FileTokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.softmax import LINEAR, Softmax, scorer_of
from nplm_jax.runs.packing import arrays_of
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.packages import require_package

_MODULES = ('configuration_nplm', 'modeling_nplm', 'bodies_nplm', 'deep_bodies_nplm')
MODEL_FILES = tuple(pathlib.Path(__file__).with_name(f'{name}.py') for name in _MODULES)

Arrays = Mapping[str, np.ndarray]


def write_folder(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, folder: pathlib.Path) -> None:
    """Writes a folder that transformers can load. Writes config.json last.

    Args:
        model: A network with a softmax over all words.
        vocabulary: The vocabulary of the model.
        settings: The settings of the run.
        folder: The folder, which is created if it does not exist. Existing files are replaced.

    Raises:
        BadInput: The format does not support the model or its tokenizer, or a package is not installed.
        OSError: A file cannot be written.
    """
    family = settings.model.name
    network = model.network if isinstance(model, NeuralLanguageModel) else None
    if network is None or family not in _BODIES or scorer_of(network.output) is not LINEAR:
        outputs = {kind: component_class('output.kind', kind) for kind in KINDS['output.kind'].paths}
        kinds = [kind for kind, output in outputs.items() if issubclass(output, Softmax)]
        allowed = f'{", ".join(_BODIES)} with a softmax over all words (output.kind={", ".join(kinds)})'
        has = f'model.family={family}' + (f' with output.kind={settings.output.name}' if network else '')
        raise BadInput('--to', f'supports model.family={allowed}, not {has}', value='hf')
    ours, ids = vocabulary.tokenizer, vocabulary.ids
    if not isinstance(ours, WordTokenizer | ByteTokenizer | FileTokenizer):
        raise BadInput('--to', f'supports word, byte and file tokenizers, not corpus.tokens={ours.kind}', value='hf')
    safetensors = require_package('safetensors.numpy', 'export')
    tokenizer = word_tokenizer(ours, ids) if isinstance(ours, WordTokenizer) else ours.to_hf(ids)
    arrays = arrays_of(model)
    tensors = {name: np.ascontiguousarray(array) for name, array in _tensors(arrays, family).items()}
    words, ends = special_tokens(ids), {}
    if ours.is_lossless:
        # Set only ids. The tokenizer would drop special tokens from decoded texts, and recognize them in ordinary text.
        del words['bos_token']
        ends = {name: i for i in LineStart.of(vocabulary).prefix for name in ('bos_token_id', 'eos_token_id')}
    known = {**ids, words['pad_token']: len(vocabulary)}
    special_ids = {f'{role}_id': known[word] for role, word in words.items() if role != 'unk_token'} | ends
    # With split_special_tokens, special tokens that are spelled out in a text are treated as ordinary text.
    choices = {'clean_up_tokenization_spaces': False, 'split_special_tokens': True}
    tokenizer_config = {'tokenizer_class': 'PreTrainedTokenizerFast', **choices, **words}
    folder.mkdir(exist_ok=True)
    write_atomically(folder / 'model.safetensors', safetensors.save(tensors, {'format': 'pt'}))
    write_atomically(folder / 'tokenizer.json', tokenizer.to_str(pretty=True))
    for file in MODEL_FILES:
        write_atomically(folder / file.name, file.read_text(encoding='utf-8'))
    config = _config(network, arrays, family)
    configs = {'tokenizer_config': tokenizer_config, 'generation_config': special_ids, 'config': config}
    for name, values in configs.items():
        write_atomically(folder / f'{name}.json', json.dumps(values, indent=2) + '\n')


def _config(network: Any, arrays: Arrays, family: str) -> dict[str, Any]:
    """Returns the content of config.json: the attributes of NplmConfig, and the modules that define its classes."""
    configuration, modeling, *_ = _MODULES
    body = network.body
    names = ('m', 'h', 'n', 'direct', 'tied', 'layers', 'window', 'averages', 'expansion', 'rounds', 'heads', 'memory')
    return {
        'model_type': 'nplm-jax',
        'architectures': ['NplmForCausalLM'],
        'auto_map': {
            'AutoConfig': f'{configuration}.NplmConfig',
            'AutoModelForCausalLM': f'{modeling}.NplmForCausalLM',
        },
        'dtype': 'float32',
        'family': family,
        'vocab_size': network.vocabulary_size,
        'num_context': body.lookback + 1,
        'projected': 'P_KxM' in arrays,
        **{name: getattr(body, name) for name in names if hasattr(body, name)},
    }


def _tensors(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    """Returns the parameters by PyTorch name. Matrices have the shape outputs x inputs, as in PyTorch."""
    outputs = [arrays[name] for name in ('U_VxK', 'W_VxP') if name in arrays]
    tensors = {'C.weight': arrays['C_VxM'], 'b': arrays['b_V']}
    if outputs:
        tensors['U.weight'] = np.concatenate(outputs, axis=1)
    if 'P_KxM' in arrays:
        tensors['P.weight'] = arrays['P_KxM'].T
    return tensors | {f'body.{name}': array for name, array in _BODIES[family](arrays, family).items()}


def _window(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    return {'H.weight': arrays['H_KxP'], 'H.bias': arrays['d_K']} if 'H_KxP' in arrays else {}


def _residual(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    return {'H.weight': arrays['H_PxK'].T, 'H.bias': arrays['d_K'], 'norm.weight': arrays['g_K']} | _layers(arrays)


def _transformer(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    return {'E.weight': arrays['E_PxK'].T, 'norm.weight': arrays['g_K']} | _layers(arrays)


def _layers(arrays: Arrays) -> dict[str, np.ndarray]:
    """Returns the parameters of the layers by PyTorch name. In `arrays`, their names are layers.layer_I.LETTER."""
    tensors = {}
    for name, array in arrays.items():
        if name.startswith('layers.'):
            _, layer, letter = name.split('.')
            tensors[_LAYER[letter].format(layer.removeprefix('layer_'))] = array.T
    return tensors


_LAYER = {
    'A_KxF': 'layers.{}.A.weight',
    'a_F': 'layers.{}.A.bias',
    'B_FxK': 'layers.{}.B.weight',
    'g_K': 'layers.{}.norm.weight',
    'QKV_Kx3K': 'attentions.{}.QKV.weight',
    'O_KxK': 'attentions.{}.O.weight',
    'g_attention_K': 'attentions.{}.norm.weight',
}


def _recurrent(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    """Returns the parameters of PyTorch's cells, which stack the gates in one matrix for x and one for h."""
    tensors: dict[str, np.ndarray] = {}
    for i, cell in enumerate(_cells(arrays)):
        if family == 'rnn':
            ih, hh, b_ih = (arrays[f'{cell}.{name}'] for name in ('W_e_KxM', 'W_h_KxK', 'b_1_K'))
            b_hh = np.zeros_like(b_ih)
        else:
            ih, hh, b_ih, b_hh = _gates(arrays, cell, 'rzn' if family == 'gru' else 'ifgo')  # in PyTorch's order
        names = (f'{name}_l{i}' for name in ('weight_ih', 'weight_hh', 'bias_ih', 'bias_hh'))
        tensors |= {f'cell.{name}': array for name, array in zip(names, (ih, hh, b_ih, b_hh))}
    return tensors


def _cells(arrays: Arrays) -> list[str]:
    """Returns the names of the cells in layer order: cell, cell_1, ..."""
    cells = {name.split('.')[0] for name in arrays if name.startswith('cell')}
    return sorted(cells, key=lambda cell: (len(cell), cell))


def _qrnn(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    tensors = {'W_before.weight': arrays['cell.W_before_DxG'].T}
    for i, cell in enumerate(_cells(arrays)):
        tensors |= {f'W.{i}.weight': arrays[f'{cell}.W_DxG'].T, f'W.{i}.bias': arrays[f'{cell}.b_G']}
    return tensors


def _mogrifier(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    """Returns the parameters of the PyTorch cells, one per layer, and the matrices Q_i and R_i.

    The names of Q_i and R_i contain the layer and the round, both counted from 0.
    """
    tensors = {}
    for name, array in _recurrent(arrays, family).items():
        matrix, layer = name.removeprefix('cell.').rsplit('_l', 1)
        tensors[f'cells.{layer}.{matrix}'] = array
    for name, array in arrays.items():
        cell, _, weight = name.partition('.')
        if weight.startswith(('Q_', 'R_')):
            layer, number = cell.removeprefix('cell').removeprefix('_') or '0', int(weight.split('_')[1])
            tensors[f'rounds.{layer}.{number - 1}.weight'] = array.T
    return tensors


def _attentive_mogrifier(arrays: Arrays, family: str) -> dict[str, np.ndarray]:
    A_MxK, q_K, s_1 = (arrays[f'recall.{name}'] for name in ('A_MxK', 'q_K', 's_1'))
    return _mogrifier(arrays, family) | {'A.weight': A_MxK.T, 'q': q_K, 's': s_1}


def _gates(arrays: Arrays, cell: str, gates: str) -> list[np.ndarray]:
    """Returns the matrices for x and h, followed by their biases. A bias that the Flax cell lacks is zero."""
    K = arrays[f'{cell}.h{gates[0]}.kernel'].shape[0]
    zeros_K = np.zeros(K, np.float32)
    kernels = [np.concatenate([arrays[f'{cell}.{side}{gate}.kernel'].T for gate in gates]) for side in 'ih']
    biases = [np.concatenate([arrays.get(f'{cell}.{side}{gate}.bias', zeros_K) for gate in gates]) for side in 'ih']
    return kernels + biases


_BODIES: dict[str, Callable[[Arrays, str], dict[str, np.ndarray]]] = {
    'nplm': _window,
    'residual': _residual,
    'rnn': _recurrent,
    'gru': _recurrent,
    'lstm': _recurrent,
    'window_lstm': _recurrent,
    'mogrifier': _mogrifier,
    'attentive_mogrifier': _attentive_mogrifier,
    'qrnn': _qrnn,
    'transformer': _transformer,
    'transformer_n': _transformer,
}
