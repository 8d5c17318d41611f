"""Loads the models of finished runs and encodes a user's text for them. Imports JAX only to load."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import tokenization
from nplm_jax.data.vocabulary import RARE, Vocabulary
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

if TYPE_CHECKING:
    from nplm_jax.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """The models of one or several runs that share a vocabulary.

    Attributes:
        names: the names of the runs' folders.
        settings: the settings of the runs.
        vocabulary: the vocabulary of all runs.
        models: the models of the runs.
        mixture: the mixture of the models with equal weights; the model itself where there is only one.
    """

    names: Sequence[str]
    settings: Sequence[Settings]
    vocabulary: Vocabulary
    models: Sequence[LanguageModel]
    mixture: LanguageModel

    def with_mixture(self) -> list[tuple[str, LanguageModel]]:
        """Returns the models with their names; the mixture comes first where there are several."""
        mixtures = [('mixture', self.mixture)] if len(self.models) > 1 else []
        return [*mixtures, *zip(self.names, self.models)]

    def word_features(self) -> list[tuple[str, np.ndarray]]:
        """Returns the word features C (float32, V x M) of each network, with its name."""
        from nplm_jax.models.neural import NeuralLanguageModel

        networks = [(name, m) for name, m in zip(self.names, self.models) if isinstance(m, NeuralLanguageModel)]
        return [(name, np.asarray(network.params['C_VxM'])) for name, network in networks]

    def tokenize(self, text: str, kind: str) -> list[str]:
        """Splits a user's text into words as the first run's corpus was, or as `kind` says (see `tokenize_prompt`)."""
        return tokenization.tokenize_prompt(text, self.settings[0].corpus, self.vocabulary.ids, kind)

    def tokenize_prompt(self, text: str, kind: str) -> list[str]:
        """Returns the words of a prompt. Raises BadInput if it has words and the vocabulary has none of them."""
        words = self.tokenize(text, kind)
        known = not words or any(word in self.vocabulary.ids for word in words)
        require(known, '--prompt', text, 'no word of it is in the vocabulary')
        return words

    def describe_unknown(self, words: Sequence[str]) -> str:
        """Returns a note that names the words outside the vocabulary; empty if there are none."""
        unknown = dict.fromkeys(word for word in words if word not in self.vocabulary.ids)
        return f'not in the vocabulary, read as {RARE}: {" ".join(unknown)}' if unknown else ''

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Returns the ids of the words, int32, and names the unknown words on stderr."""
        if note := self.describe_unknown(words):
            print(note, file=sys.stderr)
        return self.vocabulary.encode(words)


def load_models(folders: Sequence[str]) -> LoadedModels:
    """Loads the models of finished runs. Raises BadInput if a run is not finished or the vocabularies differ."""
    from nplm_jax.models import mixture
    from nplm_jax.runs import loading, process

    process.set_up_process()
    for folder in folders:
        finished = (expand('--workdir', folder) / 'results.json').is_file()
        require(finished, '--workdir', folder, 'no finished run lies there; python launch.py trains one')
    settings, vocabularies, models = zip(*map(loading.load, folders))
    for folder, vocabulary in zip(folders, vocabularies):
        same = vocabulary.words == vocabularies[0].words
        sizes = f'its vocabulary ({len(vocabulary):,} words) is not that of {folders[0]} ({len(vocabularies[0]):,})'
        require(same, '--workdir', folder, f'{sizes}; models can be mixed only over the same words')
    mixed = mixture.equal(models) if len(models) > 1 else models[0]
    names = [os.path.basename(os.path.abspath(folder)) for folder in folders]
    return LoadedModels(names, settings, vocabularies[0], models, mixed)
