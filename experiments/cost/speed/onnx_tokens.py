"""Tokens a second on one core, one stream, word by word: ONNX Runtime in float32 and in 8 bits beside `advance`.

    taskset -c 0 python -m experiments.cost.speed.onnx_tokens    docs/howto/export.md has its packages
    python -m experiments.cost.speed.onnx_tokens --show   the table of the committed results, nothing measured

Every network has random parameters and the words of Brown; after each token the log-probabilities of all words are
computed and read. The contestants take turns. Writes results/onnx_tokens.json and prints the table.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from configs import brown
from experiments import study
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax.apps.export import onnx_graph
from nplm_jax.data.vocabulary import numbered
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results' / 'onnx_tokens.json'
_STREAMS = {'model.bptt_length': 16, 'train.batch_size': 512}
NETWORKS: dict[str, dict[str, Any]] = {
    'nplm, n=5, m=100, h=200': {'model.n': 5, 'model.m': 100, 'model.h': 200},
    'lstm, m=h=320, tied': _STREAMS | {'model.family': 'lstm', 'model.m': 320, 'model.h': 320, 'model.tied': True},
    'transformer, m=h=200': _STREAMS | {'model.family': 'transformer', 'model.m': 200, 'model.h': 200},
}
WAYS = {'advance': 'ours', 'float32': 'ONNX Runtime', 'int8': 'ONNX Runtime, int8'}


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_count('--tokens', 200, 'tokens of a turn', least=2)
    parser.add_count('--rounds', 5, 'turns of each contestant')
    parser.add_output_path(RESULTS)


def read_by_ours(model: NeuralLanguageModel, ids_T: np.ndarray) -> np.ndarray:
    """Returns log P after the last of some tokens, V."""
    state = model.prefill(np.zeros((1, 0), np.int32))
    for token in ids_T:
        state = model.advance(state, np.array([token], np.int32))
        log_p_1xV = np.asarray(model.predict(state))
    return log_p_1xV[0]


def read_by_onnx(session: Any, ids_T: np.ndarray) -> np.ndarray:
    """Returns log P after the last of some tokens, V."""
    outputs = [output.name for output in session.get_outputs()]
    starts = json.loads(session.get_modelmeta().custom_metadata_map[onnx_graph.STATE])
    state = {name: np.full([1, *x['shape'][1:]], x['fill'], x['dtype']) for name, x in starts.items()}
    for token in (0, *ids_T):
        found = dict(zip(outputs, session.run(outputs, {'ids': np.array([token]), **state})))
        state = {name: found[name.replace(onnx_graph.STATE, onnx_graph.NEXT, 1)] for name in state}
    return found[onnx_graph.LOG_PROBABILITIES][0]


def measure_network(changes: dict[str, Any], flags: study.Flags) -> dict[str, Any]:
    """Returns what is found for a network: by the name of each way its tokens a second, bytes and difference."""
    import onnxruntime  # noqa: PLC0415 (an optional package)

    model, settings = problem.random_model(changes)
    ids_T = np.random.default_rng(0).integers(0, brown.VOCABULARY, flags.tokens)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    turns: dict[str, problem.Turn] = {'advance': functools.partial(read_by_ours, model, ids_T)}
    num_bytes = {'advance': sum(x.nbytes for x in jax.tree.leaves(model.params))}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'model.onnx'
        for way in ('float32', 'int8'):
            onnx_graph.write_onnx(model, numbered(brown.VOCABULARY), settings, path, int8=way == 'int8')
            num_bytes[way] = path.stat().st_size
            session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
            turns[way] = functools.partial(read_by_onnx, session, ids_T)
    expected_V = turns['advance']()
    differences = {way: float(np.abs(turn() - expected_V).max()) for way, turn in turns.items()}
    seconds = problem.alternate(turns, flags.rounds)
    return {
        way: {
            'tokens_per_second': [flags.tokens / s for s in seconds[way]],
            'bytes': num_bytes[way],
            'largest_difference': differences[way],
        }
        for way in turns
    }


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields all results, after each network."""
    cores = len(os.sched_getaffinity(0))
    require(cores == 1, 'processor cores', cores, 'must be 1: put `taskset -c 0` before the command')
    facts = {**of_module('experiments.cost.speed.onnx_tokens'), 'vocabulary': brown.VOCABULARY}
    facts['load'] = os.getloadavg()[0]
    networks = {}
    for name, changes in NETWORKS.items():
        networks[name] = measure_network(changes, flags)
        yield {**facts, 'networks': networks}


def make_table(measured: dict[str, Any]) -> str:
    """Returns the table: medians over the rounds."""
    rows = []
    for network, ways in measured['networks'].items():
        for way, found in ways.items():
            rates = found['tokens_per_second']
            texts = f'{statistics.median(rates):,.0f}', f'{min(rates):,.0f}-{max(rates):,.0f}'
            rows.append(
                [network, WAYS[way], *texts, f'{found["bytes"] / 1e6:.1f}', f'{found["largest_difference"]:.1e}']
            )
    header = ['network', 'by', 'tokens/s', 'range', 'MB', 'difference']
    where = f'one core of {measured["device"]}, load {measured["load"]:.1f} before'
    note = f'|V| = {measured["vocabulary"]:,}, random parameters, one stream, {where}.'
    return '\n'.join([markdown_table(header, rows), '', note, 'Difference: the largest of log P from ours, nats.'])


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
