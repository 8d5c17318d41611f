"""Chooses a network for a text, a machine and a time budget. Used by `nplm train --minutes`.

The function `network(width, passes, words)` of a config file returns the config keys of the best known network for a
width, a number of passes and a number of training words. The program times updates for networks of several widths and
picks the widest network that fits the budget. A network fits if it can be trained on WORDS_PER_SQUARE * width**2 words
in at most MAX_PASSES passes, and on every training word at least once. If the text has fewer than MIN_WORDS training
words, the program picks a 5-gram model.
"""

import dataclasses
import itertools
import math
import pathlib
import runpy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.compose import components_among, with_components
from nplm_jax.config.registry import is_neural
from nplm_jax.data.dataset import Dataset
from nplm_jax.reporting.catalog import MINUTES
from nplm_jax.reporting.text import to_json
from nplm_jax.runs import workdir
from nplm_jax.runs.command_line import load_config
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.runs.width_choice import (
    MAX_PASSES,
    WIDTHS,
    WORDS_PER_SQUARE,
    Budget,
    Network,
    apply_keys,
    with_typed_optimizer,
)
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.untrusted import read_bytes, read_json

MIN_WORDS = 3_000  # measured: experiments/beyond/frontier/README.md
_FIVE_GRAM = MappingProxyType({'model.family': 'modified_kneser_ney', 'model.n': 5})
_LENGTH = 'train.epochs', 'train.max_steps', 'train.patience'
_INTERVALS = 'train.evaluate_every', 'train.checkpoint_every'
_WIDTH_KEYS = 'model.h', 'model.m'
_SET_BY_NETWORK = 'model.', 'output.', 'optimizer.', 'train.'
_CHECKPOINT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Choice:
    """A chosen model.

    Attributes:
        minutes: The requested training time, in minutes.
        keys: The chosen values by flattened key. Keys that the user typed are excluded.
        reasons: The lines of text that report the measurements and explain the choice.
    """

    minutes: float
    keys: dict[str, Any]
    reasons: list[str]


def load_network(path: str) -> Network:
    """Returns the function `network` of a config file. Raises BadInput if the file does not define this function."""
    network = runpy.run_path(path).get('network')
    if not callable(network):
        raise BadInput('--minutes', f'{path} must define network(width, passes, words), as configs/text.py does')
    return network


def check_flags(minutes: float, typed: Mapping[str, Any]) -> None:
    """Raises BadInput unless `minutes` is positive and compatible with the keys that the user typed."""
    is_allowed = _is_number(minutes) and 0 < minutes < math.inf
    require(is_allowed, '--minutes', minutes, 'must be a positive number')
    for key in _LENGTH:
        require(key not in typed, f'--config.{key}', typed.get(key), 'cannot be combined with --minutes, which sets it')
    for key in _WIDTH_KEYS:
        require(typed.get(key, 1) >= 1, f'--config.{key}', typed.get(key), 'must be at least 1 with --minutes')
    family = typed.get('model.family')
    allowed = 'cannot be combined with --minutes, which chooses the model'
    require(family is None or is_neural(family), '--config', family, allowed)


def check_preset(file: str) -> None:
    """Raises BadInput if --config names a preset that sets the model, because --minutes would replace this model.

    Components, such as a body or an optimizer, are allowed. Presets that change only the corpus are also allowed.
    """
    path, _, words = file.partition(':')
    if not words:
        return
    config = load_config(file)
    named = components_among(config, words)
    family = named.pop('model.family', '')  # a name may denote both a model family and a preset
    default = with_components(load_config(f'{path}:{family}' if family else path), named)
    own, expected = (
        {key: value for key, value in flatten(c).items() if key.startswith(_SET_BY_NETWORK)} for c in (config, default)
    )
    problem = 'is a preset with its own model, which --minutes would replace; name a body or an optimizer instead'
    require(own == expected, '--config', words, problem)


def read_choice(folder: pathlib.Path, minutes: float, network: Network) -> Choice | None:
    """Reads the choice recorded in the folder of a run. Returns None if the run has not trained yet.

    Args:
        folder: The folder; its contents are untrusted.
        minutes: The training time.
        network: The function `network` of the config file, from `load_network`.

    Raises:
        BadInput: The run was started without --minutes or with another value, or the record is damaged.
    """
    path = folder / MINUTES
    if not workdir.has_trained(folder):
        return None
    problem = 'contains a run that was started without --minutes; choose another folder'
    require(path.exists(), '--workdir', str(folder), problem)
    record = read_json(path)
    try:
        choice = Choice(**record)
        is_whole = _is_number(choice.minutes) and _are_lines(choice.reasons) and _could_choose(choice.keys, network)
    except (AttributeError, TypeError, BadInput):
        is_whole = False
    require(is_whole, '--workdir', str(folder), f'the file {MINUTES} is damaged; choose another folder')
    allowed = f'must be {choice.minutes:g}, as when {folder} was started; or choose another --workdir'
    require(choice.minutes == minutes, '--minutes', minutes, allowed)
    return choice


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_lines(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value.isprintable() for value in values)


def _could_choose(keys: Mapping[str, Any], network: Network) -> bool:
    """Returns whether `choose` could have chosen these keys. For example, `choose` never selects a plug-in."""
    made = [network(*facts) for facts in itertools.product(WIDTHS, (1, MAX_PASSES), (MIN_WORDS, 10**9))]
    known = {*_LENGTH, *_INTERVALS, *itertools.chain(*made, _FIVE_GRAM)}
    if not (keys.keys() <= known and _names(keys) <= _names(*made, _FIVE_GRAM)):
        return False
    config_lib.settle({}, {**made[0], **keys}, given=keys)  # raises BadInput if a value has the wrong type
    return True


def _names(*choices: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Returns the pairs of key and value whose value is a string, such as the name of a component."""
    return {(key, value) for choice in choices for key, value in choice.items() if isinstance(value, str)}


def _recorded(folder: pathlib.Path) -> bytes:
    """Returns the bytes of the recorded choice, or b'' if there is no record."""
    path = folder / MINUTES
    return read_bytes(str(path), path) if path.exists() else b''


def write_choice(folder: pathlib.Path, choice: Choice) -> None:
    """Records a choice in the existing folder of a run."""
    write_atomically(folder / MINUTES, to_json(dataclasses.asdict(choice), indent=2) + '\n')


def choose(
    config: ConfigDict, typed: Mapping[str, Any], minutes: float, network: Network, data: Dataset, folder: pathlib.Path
) -> Choice:
    """Chooses the model to train.

    Args:
        config: The config, with the typed keys.
        typed: The values of the keys that the user typed.
        minutes: The training time.
        network: The function `network` of the config file, from `load_network`.
        data: The text.
        folder: The folder of the run.

    Raises:
        BadInput: The time is too short for one pass over the text, or a key that the user typed is invalid.
    """
    words = len(data.train)
    if words < MIN_WORDS:
        reason = f'a network needs at least {MIN_WORDS:,} training words, but the text has only {words:,}'
        try:
            family = typed.get('model.family')
            require(family is None, '--config', family, 'is a network; omit it, or omit --minutes')
            apply_keys(config, _FIVE_GRAM, typed)
        except BadInput as error:
            raise BadInput('--minutes', f'{reason}; {error}', value=minutes) from None
        return Choice(minutes, dict(_FIVE_GRAM), [f'Chosen: a modified Kneser-Ney 5-gram, because {reason}'])
    network = with_typed_optimizer(network, typed)
    budget = Budget(config, typed, 60 * minutes, network, data, folder)
    width = budget.choose_width()
    plan, speed = budget.plan(width), budget.timings[width]
    passes = plan.updates / budget.updates(1)
    if passes < 1:
        least = 1.05 * (minutes + (1 - passes) * budget.updates(1) * speed.update / 60)
        allowed = f'must be at least {least:.2g} for one pass over the {words:,} training words with {width} units'
        allowed += '; to train for a shorter time, use only part of the text (--config.corpus.words)'
        raise BadInput('--minutes', allowed, value=minutes)
    keys = {
        **network(width, passes, words),
        'train.epochs': math.ceil(passes),
        'train.max_steps': plan.updates,
        'train.evaluate_every': math.ceil(plan.updates / plan.validations),
        'train.patience': plan.validations,
        'train.checkpoint_every': math.ceil(_CHECKPOINT_SECONDS / speed.update),
    }
    keys = {key: value for key, value in keys.items() if key not in typed}
    rates = [f'{budget.batch_size / s.update:,.0f} with {w} units' for w, s in sorted(budget.timings.items())]
    has_choice = len(budget.widths) > 1
    rule = f', the most that can be trained on {WORDS_PER_SQUARE} x {width}^2 words in this time' if has_choice else ''
    time_used = f'in {minutes:g} minutes of training'
    if plan.updates == budget.most_updates:
        time_used = f'in less than {minutes:g} minutes, because more epochs would not help'
    most = budget.settings(width).eval.words
    scored = sum(min(len(span), most or len(span)) for span in (data.valid, data.test))
    left, share = scored * speed.score, f'{scored:,}' if most else 'all'
    time_left = f'{left / 60:.1f} minutes' if left >= 60 else f'{math.ceil(left)} s'
    reasons = [
        f'Measured words/s: {", ".join(rates)}',
        f'Chosen: {width} units{rule}; {passes:.1f} passes over {words:,} words {time_used}',
        f'Evaluating {share} validation and test words will take about {time_left}',
    ]
    return Choice(minutes, keys, reasons)


def config_for_budget(
    config: ConfigDict, file: str, typed: Mapping[str, Any], minutes: float, folder: pathlib.Path
) -> tuple[ConfigDict, SharedCorpus]:
    """Returns the config for a time budget, and the corpus. A restarted run keeps its recorded choice.

    Args:
        config: The config, with the typed keys.
        file: The value of --config. The components named after its colon are kept.
        typed: The values of the keys that the user typed.
        minutes: The training time.
        folder: The folder of the run.

    Raises:
        BadInput: The folder or the text is unusable. See also `check_flags`, `check_preset`, `load_network`,
            `read_choice` and `choose`.
    """
    path, _, words = file.partition(':')
    typed = {**typed, **components_among(config, words)}
    check_flags(minutes, typed)
    check_preset(file)
    network, corpus = load_network(path), SharedCorpus(load_settings(config))
    workdir.check_path(folder)
    recorded, choice = _recorded(folder), read_choice(folder, minutes, network)
    if is_new := choice is None:
        choice = choose(config, typed, minutes, network, corpus.data, folder)
    settings = load_settings(apply_keys(config, choice.keys, typed))
    print('\n'.join(choice.reasons), flush=True)
    if is_new:
        with workdir.claimed(folder, settings):
            is_unchanged = _recorded(folder) == recorded
            require(
                is_unchanged,
                '--workdir',
                str(folder),
                'another process has just started this run; run the command again',
            )
            write_choice(folder, choice)
    return config_lib.to_config(settings), corpus
