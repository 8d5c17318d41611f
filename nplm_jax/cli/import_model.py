"""An ARPA file of KenLM, SRILM or another toolkit as a run's folder, which every command then takes.

    nplm import arpa news.arpa --workdir=runs/news
    nplm import arpa news.arpa --workdir=runs/news-brown --vocabulary=runs/brown-mlp9
    nplm generate runs/brown-mlp9 runs/news-brown --weights=0.8,0.2

Writes config.json, vocabulary.txt, the model and a results.json without perplexities, and prints the folder. The
sentence marks <s> and </s> become the one paragraph mark <p>, so that lines begin after it and `nplm score --end`
scores the end of a line; <unk> or <UNK> becomes <rare>. Words stay as they are, and other commands split text at blanks
of ASCII alone and do not bring it into Unicode's normal form NFC, as KenLM does.

Models can be mixed only over the same words. --vocabulary=RUN gives the model the vocabulary and the text choices
(`corpus.*`) of RUN: words that both have keep their probability; those that only RUN has share that of <unk> with
<rare>; those that only the file has are summed into <rare>. So the probabilities still sum to one, and a perplexity is
comparable with RUN's.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nplm_jax.cli.parser import Parser
from nplm_jax.data import formats
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, sha256, write_atomically
from nplm_jax.utils.shell import command_line
from nplm_jax.utils.text import to_json

if TYPE_CHECKING:
    from nplm_jax.config import Settings
    from nplm_jax.data.vocabulary import Vocabulary
    from nplm_jax.models.language_model import LanguageModel
    from nplm_jax.models.ngram.backoff import BackoffModel

FAMILY = 'arpa'  # the `model.family` of an imported run


def main(argv: Sequence[str]) -> None:
    """Imports the file."""
    parser = Parser('import', __doc__)
    parser.add_argument('format', type=_format, metavar='arpa', help='format of the file')
    parser.add_argument('file', metavar='FILE', help='model to import')
    parser.add_argument(
        '--workdir', default='', metavar='DIR', help='output directory, which is required; default: none'
    )
    vocabulary = 'use the vocabulary of this run; default: that of the file'
    parser.add_argument('--vocabulary', default='', metavar='RUN', help=vocabulary)
    parser.add_plugins()
    flags = parser.parse_args(argv)
    require(bool(flags.workdir), '--workdir', flags.workdir, 'required: the folder of the run to write')

    path, folder = expand('FILE', flags.file), expand('--workdir', flags.workdir)
    sizes = import_arpa(path, folder, flags.vocabulary, shlex.join(['nplm', 'import', *argv]))
    print(f'{folder}: {sizes}')


def _format(value: str) -> str:
    """Returns the format, which comes before the file. Raises what argparse reports for another value."""
    if value == 'arpa':
        return value
    command = command_line(['nplm', 'import', 'arpa', value, f'--workdir=runs/{name_of(pathlib.Path(value))}'])
    advice = f'; to import the file, run: {command}' if '.' in value or os.path.exists(value) else ''
    raise argparse.ArgumentTypeError(f'must be arpa{advice}')


def name_of(path: pathlib.Path) -> str:
    """Returns the name of an ARPA file without its endings, as `news` of news.arpa.gz."""
    return (path.with_suffix('') if path.suffix in formats.COMPRESSED else path).stem


def import_arpa(path: pathlib.Path, folder: pathlib.Path, vocabulary_of: str, command: str) -> str:
    """Writes a run's folder. Returns the sizes of the model.

    Args:
        path: The ARPA file.
        folder: The folder of the new run.
        vocabulary_of: The folder of the run whose vocabulary and text choices the model gets; empty for its own.
        command: The command line, for results.json.

    Raises:
        BadInput: The file is no ARPA file, or has no word in common with the run, or the folder cannot be written.
    """
    from nplm_jax.models.ngram.backoff import renumber
    from nplm_jax.models.ngram.class_ngram import over_vocabulary
    from nplm_jax.models.ngram.quantization import compact
    from nplm_jax.runs import catalog, workdir

    workdir.check_path(folder)
    require(not folder.exists() or folder.is_dir(), '--workdir', str(folder), 'is no folder')
    require(not folder.exists() or not any(folder.iterdir()), '--workdir', str(folder), 'is not empty')
    settings, vocabulary, merged = read_arpa(path)
    model = compact(merged)
    imported: LanguageModel = model
    files = []
    sizes = f'{model.n}-gram model of {len(vocabulary):,} words'
    if vocabulary_of:
        run = catalog.read_run(catalog.expand_run(vocabulary_of))
        words, vocabulary = vocabulary, workdir.read_vocabulary(run.folder)
        common = sum(word in words.ids for word in vocabulary.words[1:])
        require(common > 0, '--vocabulary', vocabulary_of, 'has no word in common with the file')
        sizes += f' over the {len(vocabulary):,} words of {vocabulary_of}; {len(vocabulary) - 1 - common:,} of these'
        sizes += ' are not in the file and share the probability of <unk>'
        if set(words.words) == set(vocabulary.words):
            imported = compact(renumber(merged, vocabulary.encode(words.words)))
        else:
            imported = over_vocabulary(model, words, vocabulary)
        files = [run.folder / catalog.CORPUS]
        changed = dataclasses.replace(run.settings.model, family=FAMILY, n=settings.model.n)
        settings = dataclasses.replace(run.settings, name=settings.name, model=changed)
    try:
        write_run(folder, settings, vocabulary, imported, path, command, files)
    except OSError as error:
        raise BadInput('--workdir', f'cannot be written ({error.strerror})', value=folder) from None
    return sizes


def read_arpa(path: pathlib.Path, as_kenlm: bool = False) -> tuple[Settings, Vocabulary, BackoffModel]:
    """Returns an ARPA file as a run of its own words: its settings, its vocabulary and its model.

    Args:
        path: The file.
        as_kenlm: See `arpa.read`.

    Raises:
        BadInput: The file is no ARPA file.
    """
    from nplm_jax import config as config_lib
    from nplm_jax.data.tokenizers.tokenizer import PARAGRAPH_BOUNDARY
    from nplm_jax.data.tokenizers.words import WordTokenizer
    from nplm_jax.models.ngram import arpa, sentence_marks
    from nplm_jax.runs import workdir

    model, vocabulary = sentence_marks.merge(path, *arpa.read(path, as_kenlm))
    corpus = {'name': 'text', 'tokens': 'whitespace', 'lowercase': False, 'split_possessive': False}
    corpus |= {'boundary_tokens': PARAGRAPH_BOUNDARY in vocabulary.ids}
    keys = {'corpus': corpus, 'model': {'family': FAMILY, 'n': max(model.n, 2)}}
    settings = config_lib.from_config({'name': workdir.safe_folder_name(name_of(path)), **keys})
    tokenizer = WordTokenizer(
        boundary_tokens=settings.corpus.boundary_tokens, split_punctuation=False, match_quotes=False, is_verbatim=True
    )
    return settings, dataclasses.replace(vocabulary, tokenizer=tokenizer), model


def write_run(
    folder: pathlib.Path,
    settings: Settings,
    vocabulary: Vocabulary,
    model: LanguageModel,
    path: pathlib.Path,
    command: str,
    files: Sequence[pathlib.Path],
) -> None:
    """Writes a run's folder; results.json comes last, because it makes the run a finished one.

    Args:
        folder: The folder; made unless it exists.
        settings: What config.json gets.
        vocabulary: The vocabulary.
        model: A count-based model.
        path: Where the model comes from, which results.json says; it has no perplexity.
        command: The command line.
        files: Files to copy into the folder.
    """
    from nplm_jax.data import vocabulary as vocabulary_lib
    from nplm_jax.models.ngram import storage
    from nplm_jax.runs import catalog, provenance

    results = {
        'name': settings.name,
        'corpus': settings.corpus.name,
        'family': FAMILY,
        'vocabulary': len(vocabulary),
        'perplexity': dict.fromkeys(catalog.SPLITS),
        'seconds': 0.0,
        'imported': str(path.resolve()),
        'sha256': sha256(str(path), path),
        'command': command,
        **provenance.provenance(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file.exists():
            shutil.copyfile(file, folder / file.name)
    vocabulary_lib.save(vocabulary, folder / catalog.VOCABULARY)
    storage.save(model, folder / storage.MODEL_FILE)
    catalog.write_config(folder, settings)
    write_atomically(folder / catalog.RESULTS, to_json(results, indent=2) + '\n')
