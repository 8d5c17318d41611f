"""Defines the result of `nplm_jax.load` and `nplm_jax.train`: a trained model with its settings and vocabulary."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import require

if TYPE_CHECKING:
    from nplm_jax.config.settings import Settings
    from nplm_jax.data.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedModel:
    """A trained model, with its settings and vocabulary.

    Loaded models can be passed to `nplm_jax.perplexity`, `sample`, `encode_prompt`, `surprisal`, `induce`,
    `kenlm.Model` and the decoders.

    Attributes:
        settings: The settings of the run.
        vocabulary: The words, with their tokenizer.
        model: The language model, whose methods take and return word ids.
        folder: The run folder, or the cache folder of a packed model, or None for a model derived from other models.
        results: The contents of results.json. None for an unfinished run or a model derived from other models.
        name: The name of the run folder or packed file, which commands show. Empty for a model derived from other
            models.
    """

    settings: 'Settings'
    vocabulary: 'Vocabulary'
    model: LanguageModel
    folder: pathlib.Path | None = None
    results: Mapping[str, Any] | None = None
    name: str = ''

    def __post_init__(self) -> None:
        if isinstance(self.model, LanguageModel):  # mixtures compare the vocabularies of models
            self.model.vocabulary = self.vocabulary

    def __repr__(self) -> str:
        name, family = self.settings.name[:60], self.settings.model.name[:30]
        return f'<LoadedModel {name}: {family}, {len(self.vocabulary):,} words, {self.model!r}>'


def model_of(model: LoadedModel | LanguageModel) -> LanguageModel:
    """Returns the language model of a loaded model. A language model is returned unchanged.

    Raises:
        BadInput: The argument is neither a LoadedModel nor a LanguageModel.
    """
    allowed = 'must be a LoadedModel (see nplm_jax.load) or a LanguageModel'
    require(isinstance(model, (LoadedModel, LanguageModel)), 'model', _shown(model), allowed)
    return model.model if isinstance(model, LoadedModel) else model


def check_loaded(key: str, model: Any) -> None:
    """Raises BadInput unless `model`, the argument named `key`, is a loaded model."""
    require(isinstance(model, LoadedModel), key, _shown(model), 'must be a LoadedModel; see nplm_jax.load')


def _shown(value: Any) -> Any:
    return value if isinstance(value, (str, os.PathLike)) else type(value).__name__
