"""Loads the models named on a command line, and tokenizes user texts with the vocabulary of these models."""

import dataclasses
import functools
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from nplm_jax.config.registry import NGRAM_MODELS, component_class
from nplm_jax.config.settings import Settings
from nplm_jax.data import text_checks, unspaced_scripts
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import generation
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.models.open_vocabulary import OpenVocabulary
from nplm_jax.ngram import arpa_files
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.quantization import compact
from nplm_jax.reporting import catalog, packed
from nplm_jax.reporting.run_table import check_finished, run_names
from nplm_jax.runs import estimation, loading, process, spelling
from nplm_jax.runs.imported import FAMILY, read_arpa
from nplm_jax.runs.mixture_weights import read_weights
from nplm_jax.runs.remote_scoring import RemoteModel, Source
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import is_unicode

_MAX_NAMED = 12  # maximum number of unknown words listed in a note


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """The models of one or several runs that share a vocabulary.

    Attributes:
        folders: The folders of the runs, packed models, or ARPA files.
        names: The names of the runs.
        settings: The settings of the runs.
        vocabulary: The vocabulary of all runs.
        models: The models of the runs.
        mixture: The mixture of the models, or the model itself if there is only one.
        line_start: The context in which the first word of a line is predicted.
    """

    folders: Sequence[str]
    names: Sequence[str]
    settings: Sequence[Settings]
    vocabulary: Vocabulary
    models: Sequence[LanguageModel]
    mixture: LanguageModel
    line_start: LineStart

    def with_mixture(self) -> list[tuple[str, LanguageModel]]:
        """Returns pairs of a name and a model. If there are several models, their mixture comes first."""
        mixtures = [('mixture', self.mixture)] if len(self.models) > 1 else []
        return [*mixtures, *zip(self.names, self.models)]

    def by_name(self) -> dict[str, LoadedModel]:
        """Returns the model, the settings and the vocabulary of each run, by the name of the run."""
        rows = zip(self.names, self.settings, self.models)
        return {name: LoadedModel(settings, self.vocabulary, model) for name, settings, model in rows}

    def on_cluster(self) -> Self:
        """Returns models that score long texts on the workers of --scheduler."""
        self._refuse_arpa('--scheduler')

        def remote(model: LanguageModel, *source: Any) -> RemoteModel:
            return RemoteModel(model, functools.partial(Source.of, *source))

        made = [remote(model, [folder]) for model, folder in zip(self.models, self.folders)]
        if len(made) == 1:
            return dataclasses.replace(self, models=made, mixture=made[0])
        assert isinstance(self.mixture, mixture.Mixture)
        weights = self.mixture.weights_QxM[0].tolist()
        return dataclasses.replace(self, models=made, mixture=remote(self.mixture, self.folders, weights))

    def backoff_models(self) -> list[BackoffModel]:
        """Returns the models. Raises BadInput, naming --to=arpa, if any of them is not a back-off model."""
        models = []
        for model, settings in zip(self.models, self.settings):
            if not isinstance(model, BackoffModel):
                classes = {name: component_class('model.family', name) for name in NGRAM_MODELS if name != FAMILY}
                families = ', '.join(name for name, estimator in classes.items() if estimator.is_backoff)
                family = settings.model.name
                found = f'{FAMILY} over the words of another run' if family == FAMILY else family
                problem = f'ARPA files can contain only back-off models ({families}, or imported), not {found}'
                raise BadInput('--to=arpa', problem)
            models.append(model)
        return models

    def word_features(self) -> list[tuple[str, np.ndarray]]:
        """Returns the name of each network and its word features C (float32, V x M). Skips other models."""
        networks = [(name, m) for name, m in zip(self.names, self.models) if isinstance(m, NeuralLanguageModel)]
        return [(name, np.asarray(network.params['C_VxM'])) for name, network in networks]

    def show(self, ids: Iterable[int]) -> list[str]:
        """Returns the display forms of words, given their ids."""
        return [self.vocabulary.shown[i] for i in ids]

    def split_lines(self, text: str) -> list[str]:
        """Returns the lines of a user's text. Windows line ends are read as newlines if the training text has none."""
        if not self.line_start.has_returns:
            text = text.replace('\r\n', '\n').removesuffix('\r')  # the last newline may be missing
        return text.split('\n')

    def tokenize(self, text: str, kind: str, keep_marks: bool = False) -> list[str]:
        """Returns the tokens of a user's text.

        Args:
            text: The text. The spaces between Chinese, Japanese or Thai words may be removed; see `unspaced_scripts`.
            kind: How to split text into words: `words`, `whitespace`, or '' as for the corpus. See `words.reading`.
            keep_marks: Whether to keep boundary tokens that are written in the text. See `cutting.tokenize`.
        """
        return self.tokenize_lines(unspaced_scripts.join(self.vocabulary, [text]), kind, keep_marks)[0]

    def tokenize_lines(self, texts: Sequence[str], kind: str, keep_marks: bool = False) -> list[list[str]]:
        """Tokenizes several texts at once, which is faster than calling `tokenize` for each. Does not call `join`."""
        return cutting.tokenize(reading(self.vocabulary.tokenizer, kind), texts, self.vocabulary.ids, keep_marks)

    def read_lines(self, texts: Sequence[str], kind: str) -> list[list[str]]:
        """Returns the words of each text. Warns on stderr about unknown words and missing spaces."""
        lines = self.tokenize_lines(texts, kind)
        self.warn_unknown([word for line in lines for word in line])
        warning = '' if self.vocabulary.tokenizer.tokens else text_checks.describe_whitespace(texts)
        if warning := warning or unspaced_scripts.describe_text(self.vocabulary, texts):
            print(warning, file=sys.stderr)
        return lines

    def read_stream(self, lines: Sequence[str], kind: str) -> list[list[str]]:
        """Returns the tokens of each line in a text whose newlines are tokens. A newline also follows the last line."""
        tokens = self.tokenize('\n'.join([*lines, '']), kind)
        ends = [i + 1 for i, token in enumerate(tokens) if '\n' in self.vocabulary.tokenizer.decode([token])]
        stops = [*ends, len(tokens)]
        return [tokens[start:stop] for start, stop in zip([0, *stops], stops) if start < stop]

    def tokenize_prompt(self, text: str, kind: str) -> list[str]:
        """Returns the words of a prompt. Lists unknown words on stderr. Raises BadInput if all words are unknown."""
        require(is_unicode(text), '--prompt', text, 'must be valid UTF-8')
        words = self.tokenize('\n'.join(self.split_lines(text)), kind)
        unspaced_scripts.check_known(self.vocabulary, [text], '--prompt')
        known = not words or any(word in self.vocabulary.ids for word in words)
        require(known, '--prompt', text, 'must contain at least one word of the vocabulary')
        self.warn_unknown(words, is_measured=False)
        if warning := unspaced_scripts.describe_text(self.vocabulary, [text]):
            print(warning, file=sys.stderr)
        return words

    def _unknown(self, words: Sequence[str]) -> list[str]:
        """Returns the words that the models read as RARE, including RARE itself if a text contains it."""
        return [word for word in words if self.vocabulary.ids.get(word, RARE_ID) == RARE_ID]

    def describe_unknown(self, words: Sequence[str]) -> str:
        """Returns a message with the number and a list of out-of-vocabulary words, or '' if there are none."""
        unknown = self._unknown(words)
        if not unknown:
            return ''
        share, different = f'{len(unknown) / len(words):.1%}', list(dict.fromkeys(unknown))
        more = f' and {len(different) - _MAX_NAMED:,} more' if len(different) > _MAX_NAMED else ''
        count = f'{len(unknown):,} of {len(words):,} words ({share}) are not in the vocabulary and are read as {RARE}'
        return f'{count}: {" ".join(different[:_MAX_NAMED])}{more}'

    def describe_oov(self, share: float, words: str = 'words') -> str:
        """Returns a warning if the share of unknown words is large. See `text_checks.describe_oov`."""
        return text_checks.describe_oov(share, words, self.settings[0].corpus, len(self.vocabulary))

    def warn_unknown(self, words: Sequence[str], is_measured: bool = True) -> None:
        """Lists out-of-vocabulary words on stderr and warns if there are too many.

        Args:
            words: The words.
            is_measured: Whether the words are scored. True for a text, and False for a prompt.
        """
        if self.vocabulary.tokenizer.is_lossless:  # these tokenizers have no unknown words
            return
        share = len(self._unknown(words)) / max(len(words), 1)
        warning = self.describe_oov(share) if is_measured else ''
        for line in filter(None, (self.describe_unknown(words), warning)):
            print(line, file=sys.stderr)

    def warn_unspaced(self, items: Sequence[Sequence[str]], key: str, needs_words: bool = True) -> None:
        """Warns on stderr about items whose use of spaces differs from the training text. See `unspaced_scripts`.

        Args:
            items: The words of each item.
            key: The source of the words, for error messages.
            needs_words: Whether individual words rather than whole items are scored.

        Raises:
            BadInput: The tokens of the models are words, and no word is in the vocabulary.
        """
        texts = list(map(' '.join, items))
        unspaced_scripts.check_known(self.vocabulary, texts, key)
        if needs_words:
            warning = unspaced_scripts.describe(self.vocabulary, items)
        else:
            warning = unspaced_scripts.describe_text(self.vocabulary, texts)
        if warning:
            print(warning, file=sys.stderr)

    def read_corpus(self) -> Dataset:
        """Reads the corpus of the runs. Divides the corpus into lines if any of the runs reads it line by line.

        Raises:
            BadInput: The runs have different corpora, or the text has changed.
        """
        self._refuse_arpa('RUN')
        texts = [dataclasses.replace(settings.corpus, context='auto') for settings in self.settings]
        allowed = f'must have the same corpus.* settings as {self.folders[0]}; {_import_advice(self.folders[0])}'
        for folder, text in zip(self.folders, texts):
            require(text == texts[0], 'RUN', folder, allowed)
        data = loading.prepare_recorded(self.settings[0], *self.folders)
        if warning := self.describe_oov(max(data.oov().values()), 'validation or test words'):
            print(warning, file=sys.stderr)
        by_lines = (s for s in self.settings if estimation.reads_lines(s, data))
        return estimation.read(next(by_lines, self.settings[0]), data)

    def with_spelling(self) -> OpenVocabulary:
        """Returns the mixture, extended by a spelling model. Raises BadInput if no run has a spelling model."""
        self._refuse_arpa('--open')
        spelling.refuse_lossless(self.folders[0], self.vocabulary)
        return OpenVocabulary(self.mixture, self.vocabulary, spelling.load(*self.folders))

    def _refuse_arpa(self, key: str) -> None:
        """Raises BadInput, naming the flag `key`, if a model is an ARPA file."""
        for folder in filter(_is_arpa, self.folders):
            command = f'nplm import {shlex.quote(folder)} --workdir=DIR'
            raise BadInput(key, f'requires a run; import the ARPA file: `{command}`')

    def encode_prompt(self, words: Sequence[str]) -> np.ndarray:
        """Returns the int32 ids of a prompt, preceded by its context. See `generation.encode_prompt`."""
        return generation.encode_prompt(words, self.vocabulary)


def load_models(folders: Sequence[str], weights: str = '', finished: bool = True) -> LoadedModels:
    """Loads the models of one or several runs, which must share a vocabulary.

    Args:
        folders: The folders of the runs, packed models, or ARPA files.
        weights: The value of --weights. '' stands for equal weights. See `read_weights`.
        finished: Whether the runs must be finished. If False, runs with a checkpoint are also accepted.

    Raises:
        BadInput: `check_models` rejects the runs, the vocabularies or tokenizers differ, or the weights are invalid.
    """
    check_models(folders, finished)
    weights_1xM = read_weights(weights, folders)

    process.set_up_process()
    loaded = [_load(folder, finished) for folder in folders]
    vocabulary, models = loaded[0].vocabulary, [one.model for one in loaded]
    for folder, one in zip(folders, loaded):
        difference = one.vocabulary.difference(vocabulary, folders[0])
        allowed = f'only models with the same vocabulary can be mixed; {_import_advice(folders[0])}'
        require(not difference, 'RUN', folder, f'{difference}; {allowed}')
    mixed = mixture.Mixture(models, weights_1xM, mixture.ContextBins()) if len(models) > 1 else models[0]
    settings = [one.settings for one in loaded]
    return LoadedModels(folders, run_names(folders), settings, vocabulary, models, mixed, LineStart.of(vocabulary))


def check_models(folders: Sequence[str], finished: bool = True) -> None:
    """Raises BadInput if a model is given twice. If `finished`, also raises it for unfinished runs."""
    if finished:
        check_finished([folder for folder in folders if not _is_arpa(folder)])
    places = [catalog.expand_run(folder).resolve() for folder in folders]
    repeated = next((folder for i, folder in enumerate(folders) if places[i] in places[:i]), None)
    require(repeated is None, 'RUN', repeated, 'must not be given twice')


def _is_arpa(folder: str) -> bool:
    path = expand('RUN', folder)
    return path.is_file() and not packed.is_packed(path) and arpa_files.is_arpa(path)


def _load(folder: str, finished: bool) -> LoadedModel:
    """Loads a run in the same way as `loading.load`, or an ARPA file with the same probabilities as KenLM."""
    if not _is_arpa(folder):
        return loading.load_allowed(folder, before_validation=not finished)
    settings, vocabulary, model = read_arpa(expand('RUN', folder), as_kenlm=True)
    return LoadedModel(settings, vocabulary, compact(model))


def _import_advice(folder: str) -> str:
    """Returns advice on importing an ARPA model with the vocabulary and the `corpus.*` settings of a run."""
    command = f'nplm import FILE --workdir=DIR --vocabulary={shlex.quote(folder)}'
    return f'`{command}` imports an ARPA model with the vocabulary and corpus.* of {folder}'
