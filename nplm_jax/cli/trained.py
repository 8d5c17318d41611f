"""What the commands that use trained models share: flags, loading, the words of a user's text, complaints."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import tokenization
from nplm_jax.data.vocabulary import RARE, Vocabulary
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.runs import experiment, process
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.finite import NonFiniteError
from nplm_jax.utils.io import expand


class PlainParser(argparse.ArgumentParser):
    """Tells every mistake in one line, with exit code 2."""

    def __init__(self, doc: str | None):
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        print(message, file=sys.stderr)
        sys.exit(2)


class Parser(PlainParser):
    """With the flags that all commands take which use finished runs."""

    def __init__(self, doc: str | None):
        super().__init__(doc)
        self.add_argument('--workdir', action='append', required=True, help='the folder of a finished run')
        kinds = ('words', 'whitespace')
        self.add_argument('--tokens', choices=kinds, default='', help="how text is cut; else as the run's corpus was")


class Trained(NamedTuple):
    """One model or several of one vocabulary, and their mixture with equal weights."""

    names: list[str]  # of the runs
    settings: list[Settings]
    vocabulary: Vocabulary
    models: list[LanguageModel]
    model: LanguageModel  # the mixture, or the only one

    def named(self) -> list[tuple[str, LanguageModel]]:
        """The models by the names of their runs; where there are several, before them their mixture."""
        mixture = [('mixture', self.model)] if len(self.models) > 1 else []
        return [*mixture, *zip(self.names, self.models)]

    def unknown(self, words: Sequence[str]) -> str:
        """A note that names the words outside the vocabulary; empty where there are none."""
        words = dict.fromkeys(w for w in words if w not in self.vocabulary.ids)
        return f'not in the vocabulary, read as {RARE}: {" ".join(words)}' if words else ''

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """The ids of `words`, int32. Notes the unknown ones on stderr."""
        if note := self.unknown(words):
            print(note, file=sys.stderr)
        return self.vocabulary.encode(words)


def load(folders: Sequence[str]) -> Trained:
    """The models of finished runs. Raises: BadInput when one is not finished, or the vocabularies differ."""
    process.set_up_process()
    for folder in folders:
        finished = (expand('--workdir', folder) / 'results.json').is_file()
        require(finished, '--workdir', folder, 'no finished run lies there; python launch.py trains one')
    settings, vocabularies, models = zip(*map(experiment.load, folders))
    for folder, vocabulary in zip(folders, vocabularies):
        same = vocabulary.words == vocabularies[0].words
        sizes = f'its vocabulary ({len(vocabulary):,} words) is not that of {folders[0]} ({len(vocabularies[0]):,})'
        require(same, '--workdir', folder, f'{sizes}; models can be mixed only over the same words')
    mixed = mixture.equal(models) if len(models) > 1 else models[0]
    names = [os.path.basename(os.path.abspath(folder)) for folder in folders]
    return Trained(names, list(settings), vocabularies[0], list(models), mixed)


def prompt(trained: Trained, text: str, kind: str) -> list[str]:
    """The words of a beginning. Raises: BadInput when it has words, and none of them is known."""
    words = tokenization.tokenize_prompt(text, trained.settings[0].corpus, trained.vocabulary.ids, kind)
    known = not words or any(w in trained.vocabulary.ids for w in words)
    require(known, '--prompt', text, 'no word of it is in the vocabulary')
    return words


def run(main: Callable[[], None]) -> None:
    """Calls `main`; a user's mistake ends in one line and exit code 2, a reader that stopped reading in silence."""
    try:
        main()
        sys.stdout.flush()
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except NonFiniteError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
