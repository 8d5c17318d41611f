"""Measures the time from the start of launch.py until it reaches the paper's validation perplexity.

    python -m experiments.cost.speed.quality --config=configs/brown.py:mlp9 [--target=280] [--config.KEY=VALUE ...]
    python -m experiments.cost.speed.quality --show      the table of the committed results; nothing runs

The run is validated every quarter of an epoch unless --config.train.evaluate_every is set, and train.patience is scaled
accordingly. The results are written to results/quality_NAME.json. To save a run with changed keys under another NAME,
set --config.name.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from absl import flags as absl_flags
from ml_collections import ConfigDict, config_flags

from experiments import results, study
from experiments.sources import of_module
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import command_line
from nplm_jax.utils.errors import BadInput, require

HERE = pathlib.Path(__file__).parent
HEADER = ['run', 'target', 'seconds to it', 'reached', 'epochs', 'best valid', 'test', 'seconds in all']
HEADER += ['compiled before', 'device']
POLL_SECONDS = 0.1


def define(parser: study.StudyParser) -> None:
    """Adds the flags except --config.KEY=VALUE."""
    config = 'config file, with the row after a colon; --config.KEY=VALUE changes a key; default: none'
    parser.add_argument('--config', default='', metavar='FILE:ROW', help=config)
    target = "validation perplexity to reach; default: the paper's perplexity for the row"
    parser.add_argument('--target', type=float, help=target)
    parser.add_switch('--warm', 'use the compilation cache of earlier runs')
    parser.add_output_path(HERE / 'results', folder=True)


def read_config(file: str, keys: Sequence[str]) -> tuple[ConfigDict, dict[str, Any]]:
    """Returns the config of --config with its changes, and the changed keys.

    Args:
        file: The value of --config.
        keys: Words of the form --config.KEY=VALUE.

    Raises:
        BadInput: The file, row or key does not exist.
    """
    require(bool(file), '--config', file, 'must be given, for example configs/brown.py:mlp9')
    words = command_line.find_configs(['launch.py', f'--config={file}', *keys])
    parsed = absl_flags.FlagValues()
    config_flags.DEFINE_config_file('config', flag_values=parsed, sys_argv=words)
    parsed['config'].parser = command_line.ConfigParser()
    try:
        command_line.check_flags(words, parsed)
        parsed(words)
    except (BadInput, absl_flags.Error) as error:
        raise command_line.explain(error) from error
    return parsed.config, config_flags.get_override_values(parsed['config'])


def evaluations(config: ConfigDict, overridden: list[str]) -> list[str]:
    """Returns overrides for four evaluations per epoch, unless the user sets train.evaluate_every.

    Raises:
        BadInput: The config does not set the number of training words.
    """
    if 'train.evaluate_every' in overridden:
        return []
    words = config.corpus.train
    require(
        words >= 2, 'train.evaluate_every', 0, 'must be given: this config does not set the number of training words'
    )
    overrides = [f'--config.train.evaluate_every={max(int(words) // config.train.batch_size // 4, 1)}']
    return (
        overrides
        if 'train.patience' in overridden
        else [*overrides, f'--config.train.patience={4 * config.train.patience}']
    )


def watch(command: list[str], folder: pathlib.Path, target: float, warm: bool) -> dict[str, Any]:
    """Runs launch.py with the output folder `folder`.

    Returns:
        The time and the perplexity when the target was reached (None if it was not), and the final results.
    """
    reached: dict[str, Any] = {'seconds_to_target': None, 'reached': None, 'epoch': None}
    read = 0
    cache = {} if warm else {'JAX_COMPILATION_CACHE_DIR': str(folder.with_name('compiled'))}
    command = [*command, f'--workdir={folder}']
    started = time.perf_counter()
    child = subprocess.Popen(command, cwd=HERE.parents[2], stdout=sys.stderr, env={**os.environ, **cache})
    try:
        over = False
        while not over:
            over = child.poll() is not None
            now = time.perf_counter() - started
            rows = reporting.read_metrics(folder / 'metrics.jsonl')
            for row in rows[read:]:
                valid = row.get('valid_perplexity')
                if reached['reached'] is None and valid is not None and valid <= target:
                    reached = {'seconds_to_target': round(now, 1), 'reached': valid, 'epoch': row['epoch']}
            read = len(rows)
            if not over:
                time.sleep(POLL_SECONDS)
    finally:
        child.terminate()  # has no effect if the child has ended
        child.wait()
    if child.returncode:
        sys.exit(f'quality.py: launch.py ended with exit code {child.returncode}')
    final = json.loads((folder / 'results.json').read_text())
    final = {key: final[key] for key in ('perplexity', 'epochs', 'updates', 'words_per_second')}
    return {**reached, 'seconds': round(now, 1), 'final': final}


def measure(flags: study.Flags, keys: Sequence[str]) -> dict[str, Any]:
    """Runs the row of --config in a temporary folder. Returns the content of the JSON file."""
    config, values = read_config(flags.config, keys)
    target = flags.target or config.paper.valid
    require(bool(target), '--target', target, 'must be given: the paper has no validation perplexity for this row')
    overrides = [*evaluations(config, list(values)), *(f'--config.{key}={value}' for key, value in values.items())]
    command = [sys.executable, 'launch.py', f'--config={flags.config}', *overrides]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        reached = watch(command, pathlib.Path(folder) / 'run', target, flags.warm)
    return {
        'name': config.name,
        'target': target,
        'warm': flags.warm,
        **reached,
        'load_before': load,
        **of_module('experiments.cost.speed.quality'),
    }


def make_table(folder: pathlib.Path) -> str:
    """Returns one line per run. Raises BadInput if no run was measured."""
    paths = sorted(folder.glob('quality_*.json'))
    if not paths:
        raise BadInput(folder, 'contains no quality_*.json; run python -m experiments.cost.speed.quality --config=...')
    lines = []
    for measured in (results.read(folder, path.stem) for path in paths):
        final = measured['final']['perplexity']
        reached = [measured[k] if measured[k] is not None else '-' for k in ('reached', 'epoch')]
        seconds = f'{measured["seconds_to_target"]:.0f}' if measured['reached'] is not None else 'never'
        ends = [
            final['valid'],
            final['test'],
            f'{measured["seconds"]:.0f}',
            'yes' if measured['warm'] else 'no',
            measured['device'],
        ]
        lines.append([measured['name'], measured['target'], seconds, *reached, *ends])
    return markdown_table(HEADER, lines)


def main(keys: Sequence[str], flags: study.Flags) -> None:
    """Runs a row and prints the table."""
    measured = measure(flags, keys)
    results.write(flags.output / f'quality_{measured["name"]}.json', measured)
    print(show(flags))


def show(flags: study.Flags) -> str:
    """Returns the table for the results folder."""
    return make_table(flags.output)


if __name__ == '__main__':
    config_keys = [word for word in sys.argv[1:] if re.match(r'--?(no)?config\.', word)]
    own = [word for word in sys.argv[1:] if word not in config_keys]
    study.run(__doc__, define=define, measure=functools.partial(main, config_keys), show=show, argv=own)
