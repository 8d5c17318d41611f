"""Imports ARPA files as runs."""

import dataclasses
import pathlib
import shutil
from collections.abc import Sequence

from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import formats, vocabulary_files
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import arpa, sentence_marks, storage
from nplm_jax.ngram.backoff import BackoffModel, renumber
from nplm_jax.ngram.class_ngram import over_vocabulary
from nplm_jax.ngram.quantization import compact
from nplm_jax.reporting import catalog, provenance
from nplm_jax.reporting.text import to_json
from nplm_jax.runs import run_names, workdir
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import write_atomically, write_failure_as_bad_input
from nplm_jax.utils.untrusted import sha256

FAMILY = 'arpa'  # `model.family` of imported runs


def import_arpa(path: pathlib.Path, folder: pathlib.Path, vocabulary_of: str, command: str) -> str:
    """Imports an ARPA file as a run folder. Returns a description of the model.

    Args:
        path: The ARPA file.
        folder: The folder of the new run.
        vocabulary_of: The folder of the run that provides the vocabulary and the `corpus.*` settings. If '', the
            vocabulary of the file is used.
        command: The command line to record in results.json.

    Raises:
        BadInput: The file is not an ARPA file or has no word in common with the run, or the folder cannot be written.
    """
    workdir.check_path(folder)
    require(not folder.exists() or folder.is_dir(), '--workdir', str(folder), 'must be a folder')
    require(not folder.exists() or not any(folder.iterdir()), '--workdir', str(folder), 'must be empty')
    settings, vocabulary, merged = read_arpa(path)
    model = compact(merged)
    imported: LanguageModel = model
    files = []
    sizes = f'{model.n}-gram model of {len(vocabulary):,} words'
    if vocabulary_of:
        run = catalog.read_run(catalog.expand_run(vocabulary_of))
        words, vocabulary = vocabulary, workdir.read_vocabulary(run.folder)
        common = sum(word in words.ids for word in vocabulary.words[1:])
        require(common > 0, '--vocabulary', vocabulary_of, 'must have at least one word in common with the ARPA file')
        sizes += f' over the {len(vocabulary):,} words of {vocabulary_of}; {len(vocabulary) - 1 - common:,} of these'
        sizes += ' are not in the file and share the probability of <unk>'
        if set(words.words) == set(vocabulary.words):
            imported = compact(renumber(merged, vocabulary.encode(words.words)))
        else:
            imported = over_vocabulary(model, words, vocabulary)
        files = [run.folder / catalog.CORPUS]
        settings = dataclasses.replace(settings, corpus=run.settings.corpus)
    with write_failure_as_bad_input('--workdir', folder):
        write_run(folder, settings, vocabulary, imported, path, command, files)
    return sizes


def read_arpa(path: pathlib.Path, as_kenlm: bool = False) -> tuple[Settings, Vocabulary, BackoffModel]:
    """Reads an ARPA file as if it were a run, with the vocabulary of the file. Returns settings, vocabulary and model.

    Args:
        path: The file.
        as_kenlm: Whether to return the same probabilities as KenLM. See `arpa.read`.

    Raises:
        BadInput: The file is not an ARPA file.
    """
    model, vocabulary = sentence_marks.merge(path, *arpa.read(path, as_kenlm))
    corpus = {'name': 'text', 'tokens': 'whitespace', 'lowercase': False, 'split_possessive': False}
    corpus |= {'boundary_tokens': PARAGRAPH_BOUNDARY in vocabulary.ids}
    keys = {'corpus': corpus, 'model': {'family': FAMILY, 'n': max(model.n, 2)}}
    settings = config_lib.from_config({'name': run_names.safe_folder_name(formats.stem(path)), **keys})
    tokenizer = WordTokenizer(
        boundary_tokens=settings.corpus.tokenizer.boundary_tokens,
        split_punctuation=False,
        match_quotes=False,
        is_verbatim=True,
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
    """Writes a run folder. results.json is written last, because this file marks the run as finished.

    Args:
        folder: The folder, which is created if it does not exist.
        settings: The settings to write to config.json.
        vocabulary: The vocabulary.
        model: A count-based model.
        path: The imported file, to record in results.json.
        command: The command line.
        files: Files to copy into the folder.
    """
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
    vocabulary_files.save(vocabulary, folder / catalog.VOCABULARY)
    storage.save(model, folder / storage.MODEL_FILE)
    catalog.write_config(folder, settings)
    write_atomically(folder / catalog.RESULTS, to_json(results, indent=2) + '\n')
