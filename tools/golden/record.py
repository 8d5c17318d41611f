"""The golden record: the bitwise results of small training runs of every kind, which reveal unintended changes.

    python -m tools.golden.record --output=FILE [--brown] [--only=CASE,...]
    python -m tools.golden.record --compare=tools/golden/golden.json [--brown] [--only=CASE,...]

--output writes the record of this code. --compare repeats all cases, prints `same` or the differences of each, and
exits with code 1 if any differ. The results are bitwise reproducible only with the processor, the number of cores and
the package versions listed at the top of the record. On other machines, use tests/integration/golden_test.py, which
compares with tolerances. A commit that intentionally changes numbers must also update the record and mention it.

The cases use only `get_config`, `experiment.run`, `experiment.load`, `generation.sample`, the protocol's `next_word`
and the files of a run folder. Parameters are a sorted list of checksums, independent of their names.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import math
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from configs import brown, text
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.inference import generation
from nplm_jax.runs import experiment

RECORD = pathlib.Path(__file__).parent / 'golden.json'
UPDATES = 200  # number of updates of each small network
BROWN = 'brown_mlp9'

# Keys of all small networks: 50 updates per epoch, 4 lines of metrics.jsonl from training and 2 from validation.
NETWORK = {
    'model.precision': 'float32',
    'output.precision': 'float32',
    'corpus.train': 4800.0,
    'corpus.valid': 600.0,
    'model.n': 4,
    'model.m': 6,
    'model.h': 8,
    'model.dropout': 0.25,
    'train.batch_size': 96,
    'train.epochs': 4,
    'train.patience': 100,
    'train.evaluate_every': 100,
    'train.checkpoint_every': 1000,
    'train.log_every': 50,
    'train.steps_per_execution': 25,
}
DIRECT = {**NETWORK, 'model.direct': True, 'output.block_size': 32}  # three blocks per batch; other cases have one
RECURRENT = {**NETWORK, 'optimizer.clip_norm': 0.25, 'optimizer.learning_rate': 10.0}
COUNTS = {'corpus.train': 4800.0, 'corpus.valid': 600.0, 'model.n': 3}
BFLOAT16 = {'output.precision': 'bfloat16'}
SAMPLED = {'output.kind': 'sampled', 'output.samples': 50}
NCE = {'output.kind': 'nce', 'output.samples': 50}
CLASSES = {'output.kind': 'two_level', 'output.num_shortlist': 40, 'output.classes': 12}
LOG_UNIFORM = {'output.proposal': 'log_uniform'}
# The paper's recipe: 200 updates of 8 words in one epoch, at a rate high enough to move the parameters.
PAPER = {
    'corpus.train': 1600.0,
    'model.dropout': 0.0,
    'train.unigram_bias': False,
    'train.batch_size': 8,
    'train.epochs': 1,
    'optimizer.name': 'paper',
    'optimizer.epsilon_0': 0.1,
    'optimizer.r': 1e-3,
}

# The keys that each case overrides in configs/text.py.
CASES: dict[str, dict[str, Any]] = {
    'direct': DIRECT,
    'direct_bfloat16': {**DIRECT, **BFLOAT16},
    'no_direct': NETWORK,
    'no_direct_bfloat16': {**NETWORK, **BFLOAT16},
    'no_hidden': {**DIRECT, 'model.h': 0},
    'no_hidden_bfloat16': {**DIRECT, 'model.h': 0, **BFLOAT16},
    'no_dropout': {**DIRECT, 'model.dropout': 0.0},
    'rnn': {**RECURRENT, 'model.family': 'rnn', 'optimizer.learning_rate': 2.0},  # 10 amplifies rounding
    'rnn_bfloat16': {**RECURRENT, 'model.family': 'rnn', 'optimizer.learning_rate': 2.0, **BFLOAT16},
    'gru': {**RECURRENT, 'model.family': 'gru'},
    'gru_bfloat16': {**RECURRENT, 'model.family': 'gru', **BFLOAT16},
    'lstm': {**RECURRENT, 'model.family': 'lstm'},
    'lstm_bfloat16': {**RECURRENT, 'model.family': 'lstm', **BFLOAT16},
    'lstm_regularised': {
        **RECURRENT,
        'model.family': 'lstm',
        'optimizer.name': 'adam',
        'optimizer.learning_rate': 0.01,
        'model.layers': 2,
        'model.tied': True,
        'model.variational': True,
        'model.word_dropout': 0.1,
        'model.output_dropout': 0.1,
        'model.weight_dropout': 0.2,
        'model.activation_penalty': 0.5,
        'model.slowness_penalty': 0.5,
        'train.average': 0.9,
        **NCE,
    },
    'residual': {
        **NETWORK,
        'model.family': 'residual',
        'model.expansion': 2,
        'optimizer.learning_rate': 0.3,
        'model.layers': 2,
        'model.tied': True,
        **SAMPLED,
    },
    'sampled_direct': {**DIRECT, **SAMPLED},
    'sampled_no_direct': {**NETWORK, **SAMPLED, **LOG_UNIFORM},
    'nce_direct': {**DIRECT, **NCE},
    'nce_no_direct': {**NETWORK, **NCE, **LOG_UNIFORM},
    'classes_direct': {**DIRECT, **CLASSES},
    'classes_no_direct': {**NETWORK, **CLASSES},
    'adam': {**DIRECT, 'optimizer.name': 'adam', 'optimizer.learning_rate': 0.01},
    'rowwise_adam': {
        **DIRECT,
        **SAMPLED,
        'optimizer.name': 'rowwise_adam',
        'optimizer.learning_rate': 0.01,
        'optimizer.table_rate': 1.0,
    },
    'adagrad': {
        **DIRECT,
        'optimizer.name': 'adagrad',
        'optimizer.learning_rate': 0.5,
        'optimizer.schedule': 'linear',
        'optimizer.warmup': 20,
    },
    'paper': {**DIRECT, **PAPER},
    'sampled_paper': {**DIRECT, **SAMPLED, **PAPER},
    'maximum_likelihood': {**COUNTS, 'model.family': 'maximum_likelihood'},
    'add_delta': {**COUNTS, 'model.family': 'add_delta'},
    'backoff': {**COUNTS, 'model.family': 'backoff'},
    'interpolated': {**COUNTS, 'model.family': 'interpolated'},
    'kneser_ney': {**COUNTS, 'model.family': 'kneser_ney', 'model.n': 4},
    'modified_kneser_ney': {**COUNTS, 'model.family': 'modified_kneser_ney', 'model.n': 4},
    'classes': {**COUNTS, 'model.family': 'classes', 'model.classes': 20},
}

CONTEXTS_BXN = ((1, 5, 9), (7, 3, 2))  # ids in reading order: frequent words; the first begins the samples
SAMPLES, WORDS = 3, 12
FIRST_WORDS = 8  # recorded as log-probabilities; other words only in a checksum


def make_text() -> str:
    """Returns a fixed text of about 6,000 words, divided into paragraphs.

    Word frequencies approximately follow Zipf's law. Paragraphs have topics, and adjectives and verbs match their
    nouns, so that the previous words are informative. Uses only functions of `random` that are stable between versions.

    Returns sentences of lower-case words and punctuation, with a blank line between paragraphs.
    """
    rng = random.Random(2003)

    def pick(words: Sequence[str]) -> str:
        place = rng.random() * sum(1 / rank for rank in range(1, len(words) + 1))
        for rank, word in enumerate(words, start=1):
            place -= 1 / rank
            if place < 0:
                return word
        return words[-1]

    def syllable(number: int) -> str:
        return 'bdfgklmnprstvz'[number % 14] + 'aeiou'[number // 14 % 5]

    def invent(count: int, ending: str) -> list[str]:
        return [syllable(i) + syllable(i // 2 + 11) + ending for i in range(count)]

    nouns, verbs, adjectives = invent(96, 'n'), invent(48, 'th'), invent(40, 'sh')
    topics = [nouns[t::6] for t in range(6)]

    def noun_phrase(topic: Sequence[str]) -> list[str]:
        noun = pick(topic if rng.random() < 0.7 else nouns)
        near = adjectives[nouns.index(noun) % 8 :: 8]
        middle = [pick(near if rng.random() < 0.8 else adjectives)] if rng.random() < 0.4 else []
        return [pick(('the', 'a', 'this', 'every', 'no')), *middle, noun]

    def sentence(topic: Sequence[str]) -> str:
        subject = noun_phrase(topic)
        near = verbs[nouns.index(subject[-1]) % 12 :: 12]
        words = [*subject, pick(near if rng.random() < 0.8 else verbs), *noun_phrase(topic)]
        if rng.random() < 0.5:
            words += [pick(('in', 'with', 'under', 'without', 'near')), *noun_phrase(topic)]
        if rng.random() < 0.3:
            words += [',', pick(('and', 'but', 'or')), pick(verbs), pick(('again', 'here', 'never', 'soon'))]
        return ' '.join([*words, '.' if rng.random() < 0.9 else '?'])

    return '\n\n'.join(' '.join(sentence(topics[p % 6]) for _ in range(11)) for p in range(54)) + '\n'


def make_config(case: str, folder: pathlib.Path) -> ConfigDict | dict[str, Any]:
    """Returns the config of a case. For a small case, also writes the text to `folder`.

    Args:
        case: One of CASES, or BROWN.
        folder: The folder of the text.

    Returns:
        The config for `experiment.run`.
    """
    if case == BROWN:
        config = brown.get_config('mlp9')
        config.train.epochs = 1
        return config
    (path := folder / 'text.txt').write_text(make_text(), encoding='utf-8')
    config = text.get_config()
    changes = {'name': case, 'corpus.path': str(path), 'corpus.count_over': 'all', **CASES[case]}
    settings = config_lib.settle(flatten(config), changes, given=())  # some cases lack some of the shared keys
    return config_lib.to_config(settings)


def record(case: str, sampling: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs one case in a temporary folder.

    Args:
        case: One of CASES, or BROWN.
        sampling: Whether to also sample text, which takes a second to compile.

    Returns:
        The case's record after a round trip through JSON, and its commit, versions and device.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config, run = make_config(case, folder), folder / 'run'
        with contextlib.redirect_stdout(io.StringIO()):
            experiment.run(config, run)
            model = experiment.load(run).model
        results = json.loads((run / 'results.json').read_text(encoding='utf-8'))
        found = {key: results[key] for key in ('vocabulary', 'words', 'perplexity', 'impossible_words')}
        if 'mixture' in results:  # only for networks
            lines = (run / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
            found |= {key: results[key] for key in ('updates', 'best_update', 'mixture')}
            found['metrics'] = [_numbers_of(json.loads(line)) for line in lines]
            found['arrays'] = _checksums(model.params)
        else:
            found['next_word'] = _describe(model.next_word(np.array(CONTEXTS_BXN, np.int32)))
        if sampling:
            prompt_N = np.array(CONTEXTS_BXN[0], np.int32)
            found['samples'] = generation.sample(model, prompt_N, words=WORDS, samples=SAMPLES, seed=1).tolist()
    return json.loads(json.dumps(found)), {key: results[key] for key in ('commit', 'versions', 'device')}


def differences(found: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Returns the differences between two records, bit for bit.

    Args:
        found: The new record of a case.
        recorded: The committed record of the same case.

    Returns:
        A line for each part that differs.
    """
    lines = []
    for part in sorted({*found, *recorded}):
        now, then = found.get(part), recorded.get(part)
        if _exact(now) == _exact(then):
            continue
        if part == 'arrays' and now and then:
            known = {_exact(array) for array in now}
            others = [
                f'{dtype}{shape}' for shape, dtype, checksum in then if _exact([shape, dtype, checksum]) not in known
            ]
            lines.append(f'arrays: {len(then)} were recorded, {len(now)} found; missing: {", ".join(others) or "none"}')
            continue
        now, then = dict(_leaves(now)), dict(_leaves(then))
        places = [place for place in {**then, **now} if _exact(now.get(place)) != _exact(then.get(place))]
        example = f'{part}{places[0]}: {then.get(places[0])} was recorded, {now.get(places[0])} found'
        lines.append(f'{example}; {len(places)} of {len(then)} places differ{_largest(now, then)}')
    return lines


def _largest(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Describes the largest relative difference between common numbers. Empty if there are no differences."""
    pairs = [(now[place], then[place]) for place in then if place in now]
    relative = [abs(a - b) / abs(b) for a, b in pairs if isinstance(a, float) and isinstance(b, float) and b]
    return f', largest relative difference {max(relative):.2g}' if relative else ''


def _leaves(value: Any, place: str = '') -> Iterator[tuple[str, Any]]:
    """Yields the numbers, strings and nulls in a JSON value, with their positions."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, f'{place}[{key}]')
    else:
        yield place, value


def _exact(value: Any) -> str:
    """Returns canonical JSON. It is equal only for bitwise equal values, regardless of the order of keys."""
    return json.dumps(value, sort_keys=True)


def _numbers_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a line of metrics.jsonl without times."""
    return {key: row[key] for key in ('step', 'train_perplexity', 'valid_perplexity') if key in row}


def _checksums(params: Any) -> list[list[Any]]:
    """Returns the shape, dtype and SHA-256 of every array of a pytree, sorted."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    return sorted([list(a.shape), str(a.dtype), hashlib.sha256(a.tobytes()).hexdigest()] for a in arrays)


def _describe(log_p_BxV: np.ndarray) -> dict[str, Any]:
    """Returns a checksum of all log-probabilities, and the log-probabilities of the first words (null for -inf)."""
    first = [[p if math.isfinite(p) else None for p in row[:FIRST_WORDS].tolist()] for row in log_p_BxV]
    return {'first': first, 'all': _checksums(log_p_BxV)[0]}


def _to_text(value: Any, depth: int, margin: str = '\n') -> str:
    """Returns JSON with one line for each value in the outer `depth` levels. Each line begins with `margin`."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    deeper = margin + ' '
    if isinstance(value, list):
        return '[' + ','.join(deeper + _to_text(x, depth - 1, deeper) for x in value) + margin + ']'
    lines = (f'{deeper}{json.dumps(key)}: {_to_text(x, depth - 1, deeper)}' for key, x in value.items())
    return '{' + ','.join(lines) + margin + '}'


def main() -> None:
    """Runs the selected cases, and writes the record or compares them with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--output', type=pathlib.Path, help='file to write the record to')
    what.add_argument('--compare', type=pathlib.Path, help='record to compare the results with')
    parser.add_argument('--brown', action='store_true', help='also train MLP9 on Brown, which takes minutes')
    parser.add_argument('--only', default='', help='names of the cases to run, separated by commas; default: all cases')
    flags = parser.parse_args()
    names = [*CASES, *[BROWN] * flags.brown]
    chosen = flags.only.split(',') if flags.only else names
    if unknown := {*chosen} - {*names, BROWN}:
        parser.error(f'--only: no such case: {", ".join(sorted(unknown))}; available: {", ".join([*CASES, BROWN])}')
    jax.config.update('jax_platforms', 'cpu')  # the only platform with reproducible bits
    jax.config.update('jax_enable_compilation_cache', False)  # each process compiles for itself
    logging.set_verbosity(logging.WARNING)  # Orbax is verbose at the INFO level
    recorded = json.loads(flags.compare.read_text(encoding='utf-8')) if flags.compare else None
    cases, source, failed = {}, {}, False
    for case in chosen:
        started = time.perf_counter()
        cases[case], source = record(case)
        took = f'{time.perf_counter() - started:.1f} s'
        if recorded is None:
            print(f'{case}: {took}', flush=True)
        else:
            before = {**recorded['cases'], BROWN: recorded.get(BROWN)}.get(case)
            lines = ['not in the record'] if before is None else differences(cases[case], before)
            failed = failed or bool(lines)
            print('\n  '.join([f'{case}: {"differs" if lines else "same"}, {took}', *lines]), flush=True)
    if recorded is None:
        of_brown = {BROWN: cases.pop(BROWN)} if BROWN in cases else {}
        head = {**source, 'text_sha256': hashlib.sha256(make_text().encode()).hexdigest()}
        flags.output.write_text(_to_text({**head, 'cases': cases, **of_brown}, 4) + '\n', encoding='utf-8')
    elif failed and any(recorded[key] != source[key] for key in ('versions', 'device')):
        print(
            f'made with {recorded["versions"]} on {recorded["device"]}, compared with {source["versions"]} on '
            f'{source["device"]}: different bits do not necessarily indicate an error'
        )
    sys.exit(int(failed))


if __name__ == '__main__':
    main()
