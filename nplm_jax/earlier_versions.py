"""Translates the config.json of earlier versions: renamed keys and values, and the values of keys added since."""

from collections.abc import Mapping
from typing import Any

# Keys and values of earlier versions, which a config.json may still have.
KEY_ALIASES = {
    'corpus.marks': 'corpus.boundary_tokens',
    'output.head': 'output.num_shortlist',
    'train.steps_per_dispatch': 'train.steps_per_execution',
    'train.unroll': 'train.bptt_length',
}
VALUE_ALIASES = {('output.kind', 'classes'): 'two_level'}
# Keys that a config.json of an earlier version lacks, and what it meant without them.
ADDED_KEYS = {
    'corpus.column': 'text',
    'corpus.paragraphs': 'blank_lines',
    'train.input': 'auto',
    'eval.words': 0,
    'eval.train_words': 0,
    'output.tree': 'huffman',
    'model.layers': 1,
    'model.tied': False,
    'model.output_dropout': -1.0,
    'model.word_dropout': 0.0,
    'model.variational': False,
    'model.precision': 'float32',
    'output.exact_target': True,
    'output.min_ess': 0.0,
    'output.adaptation': 1.0,
    'recurrent.weight_dropout': 0.0,
    'recurrent.activation_penalty': 0.0,
    'recurrent.slowness_penalty': 0.0,
    'residual.averages': 3,
    'residual.expansion': 2,
    'mogrifier.rounds': 5,
    'senses.number': 2,
    'ngram.prune': '0',
    'ngram.bits': 0,
    'prior.kind': 'none',
    'prior.strength': 0.0,
    'train.average': 0.0,
    'optimizer.row_adaptivity': 1.0,
    'train.calibrate': False,
    'train.suffix_smoothing': 0.0,
}


def translate(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a flattened config, of this or an earlier version, with current keys and values."""
    renamed = {new: flat[old] for old, new in KEY_ALIASES.items() if old in flat}
    kept = {key: value for key, value in flat.items() if key not in KEY_ALIASES}
    config = {**ADDED_KEYS, **renamed, **kept}
    for (key, old_value), new_value in VALUE_ALIASES.items():
        if config.get(key) == old_value:
            config[key] = new_value
    return config
