"""The spelling of the words outside a run's vocabulary: a run of its own over characters, in the run's folder."""

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

UPDATES = 20_000  # at most; the number of passes over the words follows from it
# What differs from the defaults: a small window network over characters.
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
        vocabulary: Its vocabulary.
        words: The words outside it by split, in the order of the text, repeated as often as there.
    """

    settings: Settings
    vocabulary: Vocabulary
    words: dict[str, list[str]]


def read_rare_words(folder: Path) -> RareWords:
    """Reads the corpus of a run again for the words outside its vocabulary.

    Raises:
        BadInput: No run was started there, its text has changed, or a split has no word outside the vocabulary.
    """
    folder = catalog.find_run(folder)  # not that of a packed model in the cache
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
        raise BadInput(
            'RUN', f'no {empty[0]} word is outside its vocabulary ({counts}); nothing to spell', value=str(folder)
        )
    return RareWords(settings, known, words)


def refuse_lossless(folder: Path, words: Vocabulary) -> None:
    """Raises BadInput for a run whose tokens are parts of words."""
    kind = words.tokenizer.kind
    problem = f'corpus.tokens={kind} has no unknown words: there is no spelling to train or to use'
    require(words.tokenizer.tokens is None, 'RUN', str(folder), problem)


def train(
    folder: Path, rare: RareWords, seed: int = 1, command: str = '', changes: Mapping[str, Any] | None = None
) -> Spelling:
    """Trains the spelling of the words outside a run's vocabulary, or goes on where an earlier start ended.

    The network learns from each occurrence of a word in the training text, because P(spelling | <rare>) is that of an
    occurrence and not of a type. What comes out is an ordinary run's folder, SPELLING in that of the run.

    Args:
        folder: The folder of the run.
        rare: What `read_rare_words` returns for it.
        seed: The seed.
        command: What the results name as the command.
        changes: Values by flattened key in place of those of NETWORK.

    Raises:
        BadInput: Another spelling lies there.
        training.train.Interrupted: SIGINT or SIGTERM came during training, and the state is saved.
    """
    settings, data = prepare(rare, seed, changes)
    folder = catalog.find_run(folder)  # not that of a packed model in the cache
    experiment.run(config_lib.to_dict(settings), folder / catalog.SPELLING, command, data)
    return load(folder)


def prepare(
    rare: RareWords, seed: int = 1, changes: Mapping[str, Any] | None = None
) -> tuple[Settings, dataset.Dataset]:
    """Returns the settings and the corpus of characters with which `train` trains a network."""
    changes = changes or {}
    name = f'{rare.settings.name}-{catalog.SPELLING}'
    network = config_lib.from_config({**NETWORK, 'name': name, 'seed': seed})
    settings = config_lib.replace(dataclasses.replace(network, corpus=rare.settings.corpus), changes)
    data = characters.build_dataset(rare.words, settings.model.n - 1)
    if settings.is_neural:
        batch_size = min(settings.train.batch_size, len(data.train))
        epochs = max(1, round(UPDATES * batch_size / len(data.train)))
        settings = config_lib.replace(settings, {'train.epochs': epochs, **changes, 'train.batch_size': batch_size})
    return settings, data


def load(*folders: Path) -> Spelling:
    """Returns the spelling that lies in the folder of a run, or of the first of several runs of one vocabulary.

    Raises:
        BadInput: None has one, or its files are damaged.
    """
    paths = [catalog.expand_run(folder) for folder in folders]
    run_folder = next((path for path in paths if catalog.is_finished(path / catalog.SPELLING)), None)
    if run_folder is None:
        names = ' '.join(map(str, paths))
        raise BadInput(names, 'no spelling model for words outside the vocabulary; train one with nplm spell RUN')
    loaded = loading.load(run_folder / catalog.SPELLING)
    return Spelling(loaded.model, loaded.vocabulary, workdir.read_vocabulary(run_folder))


def measure(spelling: Spelling, words: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Measures a spelling on words that it was not trained on.

    Args:
        spelling: The spelling.
        words: What `RareWords.words` holds.

    Returns:
        For `valid`, `test` and `new`, the test words that the training words do not have: `words`, `types`,
        `characters` (of the words, and one for the end of each) and `bits_per_character`.
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
