"""TPE with pruning against random search and a grid: as many trials of each on a small network of the paper's kind.

    python -m experiments.beyond.search.study           searches, writes results/METHOD-SEED.json and prints the table
    python -m experiments.beyond.search.study --show    prints the table of the committed results

--methods=tpe --seeds=1,2 searches by one method with two seeds; --trials=5 makes fewer trials of each.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

from experiments import results, study
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_line import load_config
from nplm_jax.utils.io import expand

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
CONFIG = HERE / 'config.py'
METHODS = {'tpe': 'TPE, pruned by Hyperband', 'random': 'random', 'grid': 'grid'}
TRIALS = 30


def make_samplers() -> dict[str, dict[str, Callable[..., Any]]]:
    """Returns by method the sampler and the pruner, as arguments of `Search`."""
    import optuna  # noqa: PLC0415 (--show does without)

    from experiments.beyond.search.config import GRID  # noqa: PLC0415

    none = optuna.pruners.NopPruner
    grid = functools.partial(optuna.samplers.GridSampler, GRID)
    return {
        'tpe': {},  # as launch.py searches
        'random': {'make_sampler': optuna.samplers.RandomSampler, 'make_pruner': none},
        'grid': {'make_sampler': grid, 'make_pruner': none},
    }


def search(method: str, seed: int, num_trials: int, config: pathlib.Path, root: pathlib.Path) -> dict[str, Any]:
    """Searches, or continues a search. Returns what the JSON file holds: each trial in the order of the search.

    Args:
        method: One of METHODS.
        seed: The seed of the sampler and of every training.
        num_trials: The number of trials.
        config: The config file.
        root: The folder of the searches.
    """
    from nplm_jax.apps.sweeps import search as search_lib  # noqa: PLC0415 (it needs Optuna)
    from nplm_jax.apps.sweeps import search_space, search_storage  # noqa: PLC0415

    source = of_module('experiments.beyond.search.study')
    folder = root / f'{method}-{seed}'
    space = search_space.load(str(config), config_lib.override(load_config(str(config)), {'seed': seed}))
    url, words = search_storage.find_url(None, folder), ('launch.py', f'--config={config}', f'--config.seed={seed}')
    searching = search_lib.Search(space, folder, url, num_trials, words, **make_samplers()[method])
    print(searching.run())
    trials = []
    with search_storage.opened(url) as storage:
        for trial in searching.open_study(storage).get_trials():
            if trial.state.name in ('COMPLETE', 'PRUNED'):
                path = folder / search_lib.trial_name(trial) / 'results.json'
                ended = json.loads(path.read_text()) if trial.state.name == 'COMPLETE' else {}
                facts = {'state': trial.state.name.lower(), 'valid': trial.value, 'test': _test(ended)}
                facts['validations'] = trial.last_step or 0
                trials.append({**facts, **trial.user_attrs})
    return {'method': method, 'seed': seed, 'trials': trials, **source}


def _test(ended: dict[str, Any]) -> float | None:
    """Returns the test perplexity of a finished run."""
    return ended['perplexity']['test'] if ended else None


def best(trials: list[dict[str, Any]], validations: float = float('inf')) -> dict[str, Any]:
    """Returns the complete trial with the lowest validation perplexity of those that ended in so many validations."""
    spent, found = 0, []
    for trial in trials:
        spent += trial['validations']
        if trial['state'] == 'complete' and (spent <= validations or not found):
            found.append(trial)
    return min(found, key=lambda trial: trial['valid'])


def make_table(measured: list[dict[str, Any]]) -> str:
    """Returns one line for each search, and one without numbers for a method that was not measured."""
    totals = [sum(trial['validations'] for trial in each['trials']) for each in measured]
    same = f'valid after {min(totals)}' if totals else 'valid after the fewest'
    rows: list[list[Any]] = []
    for method, description in METHODS.items():
        found = [(each, total) for each, total in zip(measured, totals) if each['method'] == method]
        for each, total in found:
            trials, chosen = each['trials'], best(each['trials'])
            pruned = sum(trial['state'] == 'pruned' for trial in trials)
            cells = [each['seed'], len(trials), pruned, total, chosen['valid'], chosen['test']]
            rows.append([description, *cells, best(trials, min(totals))['valid']])
        if not found:
            rows.append([description, *['-'] * 7])
    return markdown_table(['search', 'seed', 'trials', 'pruned', 'validations', 'valid', 'test', same], rows)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--methods', METHODS, 'the methods')
    parser.add_argument('--seeds', type=study.counts, default=[1], help='seeds, separated by commas; default: 1')
    parser.add_count('--trials', TRIALS, f'trials of each search; default: {TRIALS}')
    parser.add_argument('--config', default=str(CONFIG), help='the config file; default: that of the study')
    parser.add_argument('--workdir', default='runs/search-study', help='the folder of the searches')
    parser.add_output_path(RESULTS, folder=True)


def measure(flags: study.Flags) -> None:
    """Searches, and prints the table."""
    from nplm_jax.runs import process  # noqa: PLC0415 (JAX takes a second)

    process.set_up_process()
    output = flags.output
    for seed in flags.seeds:
        for method in flags.methods:
            workdir, config = expand('--workdir', flags.workdir), pathlib.Path(flags.config)
            measured = search(method, seed, flags.trials, config, workdir)
            output.mkdir(parents=True, exist_ok=True)
            results.write(output / f'{method}-{seed}.json', measured)
    print(show(flags))


def show(flags: study.Flags) -> str:
    """Returns the table of the results that there are."""
    folder = flags.output
    return make_table([results.read(folder, path.stem) for path in sorted(folder.glob('*.json'))])


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
