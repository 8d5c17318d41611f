"""Trains spelling models for words outside a run's vocabulary, as character-level runs in a subfolder of the run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import characters, corpora, dataset, encoding
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.open_vocabulary import bits_per_character, count_characters
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, loading, run_inputs, workdir
from nplm_jax.runs.loading import Path
from nplm_jax.utils.errors import BadInput, require

UPDATES = 20_000  # maximum number of updates, from which the number of passes over the words follows
# The settings of a small window network over characters, where they differ from the defaults.
NETWORK: Mapping[str, Any] = {
    'model.n': 8,
    'model.m': 24,
    'model.dropout': 0.0,
    'output.precision': 'float32',
    'optimizer.name': 'adam',
    'optimizer.learning_rate': 0.005,
    'optimizer.clip_norm': 1.0,
    'optimizer.decay': 0.0,
    'train.batch_size': 256,
    'train.patience': 3,
    'train.evaluate_every': 2000,
}


class RareWords(NamedTuple):
    """The words outside a run's vocabulary.

    Attributes:
        settings: The settings of the run.
        vocabulary: The vocabulary of the run.
        words: All occurrences of words outside the vocabulary in text order, by split.
    """

    settings: Settings
    vocabulary: Vocabulary
    words: dict[str, list[str]]


def read_rare_words(folder: Path) -> RareWords:
    """Reads the words outside the vocabulary of a run from its corpus.

    Raises:
        BadInput: The folder contains no run, its text has changed, or a split has no word outside the vocabulary.
    """
    folder = catalog.find_run(folder)  # not the cached folder of a packed model
    settings = workdir.read_settings(folder)
    saved = workdir.read_vocabulary(folder)
    refuse_lossless(folder, saved)
    corpus = corpora.load(settings.corpus, saved.tokenizer)
    known = encoding.build_vocabulary(corpus, settings.corpus)
    data = encoding.build_dataset(corpus, known)
    run_inputs.refuse_changes(folder, run_inputs.difference(folder, settings, run_inputs.text_digest(data)))
    words = characters.rare_words(corpus, known)
    if empty := [split for split, split_words in words.items() if not split_words]:
        counts = f'corpus.min_count={settings.corpus.min_count}, corpus.max_vocabulary={settings.corpus.max_vocabulary}'
        raise BadInput('RUN', f'the {empty[0]} split contains no out-of-vocabulary words ({counts})', value=str(folder))
    return RareWords(settings, known, words)


def refuse_lossless(folder: Path, words: Vocabulary) -> None:
    """Raises BadInput if the tokens of a run are subwords, characters or bytes."""
    kind = words.tokenizer.kind
    problem = f'does not need a spelling model, because corpus.tokens={kind} has no unknown words'
    require(words.tokenizer.tokens is None, 'RUN', str(folder), problem)


def train(
    folder: Path, rare: RareWords, seed: int = 1, command: str = '', changes: Mapping[str, Any] | None = None
) -> Spelling:
    """Trains a spelling model for the words outside a run's vocabulary, or resumes its training.

    The network is trained on every occurrence of a word in the training text, because P(spelling | <rare>) is the
    probability of an occurrence, not of a type. The spelling model is an ordinary run in the subfolder SPELLING.

    Args:
        folder: The folder of the run.
        rare: The result of `read_rare_words`.
        seed: The random seed.
        command: The command to record in the results.
        changes: Values by flattened key that override NETWORK.

    Raises:
        BadInput: The folder contains a spelling model with other settings.
        training.train.Interrupted: SIGINT or SIGTERM arrived during training. The state is saved.
    """
    settings, data = prepare(rare, seed, changes)
    folder = catalog.find_run(folder)  # not the cached folder of a packed model
    experiment.run(config_lib.to_dict(settings), folder / catalog.SPELLING, command, data)
    return load(folder)


def prepare(
    rare: RareWords, seed: int = 1, changes: Mapping[str, Any] | None = None
) -> tuple[Settings, dataset.Dataset]:
    """Returns the settings and the character corpus that `train` uses.

    Raises:
        BadInput: A key in `changes` is invalid, or the context of the character model is unlimited.
    """
    changes = changes or {}
    name = f'{rare.settings.name}-{catalog.SPELLING}'
    network = config_lib.from_config({**NETWORK, 'name': name, 'seed': seed})
    text = dataclasses.replace(rare.settings.corpus, context='auto')  # a stream, even if the run reads lines
    settings = config_lib.replace(dataclasses.replace(network, corpus=text), changes)
    reach = settings.model.reach if settings.is_neural else settings.model.n - 1
    if reach is None:
        problem = 'must read a limited number of characters, as nplm and window_lstm do'
        raise BadInput('model.family', problem, value=settings.model.name)
    data = characters.build_dataset(rare.words, reach)
    if settings.is_neural:
        batch_size = min(settings.train.batch_size, len(data.train))
        epochs = max(1, round(UPDATES * batch_size / len(data.train)))
        settings = config_lib.replace(settings, {'train.epochs': epochs, **changes, 'train.batch_size': batch_size})
    return settings, data


def load(*folders: Path) -> Spelling:
    """Loads the spelling model of the first run that has one. All runs must share a vocabulary.

    Raises:
        BadInput: No run has a spelling model, or its files are damaged.
    """
    paths = [catalog.expand_run(folder) for folder in folders]
    run_folder = next((path for path in paths if catalog.is_finished(path / catalog.SPELLING)), None)
    if run_folder is None:
        names = ' '.join(map(str, paths))
        raise BadInput(names, 'there is no spelling model for out-of-vocabulary words; train one with: nplm spell RUN')
    loaded = loading.load(run_folder / catalog.SPELLING)
    return Spelling(loaded.model, loaded.vocabulary, workdir.read_vocabulary(run_folder))


def measure(spelling: Spelling, words: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Evaluates a spelling model on held-out words.

    Args:
        spelling: The spelling model.
        words: `RareWords.words`.

    Returns:
        For each of `valid`, `test` and `new`: `words`, `types`, `characters` (including one end symbol per word) and
        `bits_per_character`. `new` contains the test words that do not occur in the training set.
    """
    known = set(words['train'])
    held_out = {'valid': words['valid'], 'test': words['test']}
    held_out['new'] = [word for word in words['test'] if word not in known]
    measured = {}
    for split, split_words in held_out.items():
        log_p, size = float(spelling.log_probabilities(split_words).sum()), count_characters(split_words)
        measured[split] = {
            'words': len(split_words),
            'types': len(set(split_words)),
            'characters': size,
            'bits_per_character': bits_per_character(log_p, size),
        }
    return measured
