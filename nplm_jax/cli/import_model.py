"""An ARPA file of KenLM, SRILM or another toolkit as a run's folder, which every command then takes.

    nplm import arpa news.arpa --workdir=runs/news
    nplm import arpa news.arpa --workdir=runs/news-brown --vocabulary=runs/brown-mlp9
    nplm generate runs/brown-mlp9 runs/news-brown --weights=0.8,0.2

Writes config.json, vocabulary.txt, the model and a results.json without perplexities, and prints the folder. The
sentence marks <s> and </s> become the one paragraph mark <p>, so that lines begin after it and `nplm score --end`
scores the end of a line; <unk> or <UNK> becomes <rare>. Words keep their case; --tokens=whitespace of other commands
splits text at blanks alone, as KenLM does.

Models can be mixed only over the same words. --vocabulary=RUN gives the model the vocabulary and the text choices
(`corpus.*`) of RUN: words that both have keep their probability; those that only RUN has share that of <unk> with
<rare>; those that only the file has are summed into <rare>. So the probabilities still sum to one, and a perplexity is
comparable with RUN's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_bytes, write_atomically
from nplm_jax.utils.text import to_json

if TYPE_CHECKING:
    from nplm_jax.config import Settings
    from nplm_jax.data.vocabulary import Vocabulary
    from nplm_jax.models.language_model import LanguageModel

FAMILY = 'arpa'  # the `model.family` of an imported run


def main(argv: Sequence[str]) -> None:
    """Imports the file."""
    parser = Parser('import', __doc__)
    parser.add_argument('format', choices=['arpa'], help='format of the file')
    parser.add_argument('file', metavar='FILE', help='model to import')
    parser.add_argument('--workdir', required=True, metavar='DIR', help='output directory; required')
    parser.add_argument(
        '--vocabulary', default='', metavar='RUN', help='use the vocabulary of this run; default: that of the file'
    )
    flags = parser.parse_args(argv)

    from nplm_jax.data import corpora
    from nplm_jax.models.ngram import arpa, sentence_marks
    from nplm_jax.models.ngram.quantization import compact
    from nplm_jax.runs import catalog, workdir

    path, folder = expand('FILE', flags.file), expand('--workdir', flags.workdir)
    workdir.check_path(folder)
    require(not folder.exists() or not any(folder.iterdir()), '--workdir', flags.workdir, 'is not empty')
    model, words = sentence_marks.merge(path, *arpa.read(path))
    model = compact(model)
    sizes = f'{model.n}-gram model of {len(words):,} words'
    imported: LanguageModel = model
    files, vocabulary = [], words
    if flags.vocabulary:
        run = catalog.read_run(catalog.expand_run(flags.vocabulary))
        imported, vocabulary, note = map_words(model, words, run.folder)
        sizes += f' over the {len(vocabulary):,} words of {flags.vocabulary}; {note}'
        files = [run.folder / catalog.CORPUS]
        changed = dataclasses.replace(run.settings.model, family=FAMILY, n=max(model.n, 2))
        settings = dataclasses.replace(run.settings, name=workdir.safe_folder_name(path.stem), model=changed)
    else:
        settings = make_settings(path, model.n, words)
        vocabulary = dataclasses.replace(words, tokenizer=corpora.make_tokenizer(settings.corpus))
    results = describe(path, settings, len(vocabulary), ['nplm', 'import', *argv])
    write_run(folder, settings, vocabulary, imported, results, files)
    print(f'{folder}: {sizes}')


def map_words(model: Any, words: Vocabulary, folder: pathlib.Path) -> tuple[LanguageModel, Vocabulary, str]:
    """Returns the model over a run's vocabulary, that vocabulary, and a line that says how much the two share.

    Args:
        model: A back-off model.
        words: Its vocabulary.
        folder: The folder of the run.
    """
    from nplm_jax.data import vocabulary as vocabulary_lib
    from nplm_jax.models.ngram.class_ngram import over_vocabulary
    from nplm_jax.runs import catalog

    vocabulary = vocabulary_lib.load(folder / catalog.VOCABULARY)
    common = sum(word in words.ids for word in vocabulary.words[1:])
    require(common > 0, '--vocabulary', str(folder), 'has no word in common with the file')
    note = f'{len(vocabulary) - 1 - common:,} of these are not in the file and share the probability of <unk>'
    return over_vocabulary(model, words, vocabulary), vocabulary, note


def describe(path: pathlib.Path, settings: Settings, vocabulary_size: int, command: Sequence[str]) -> dict[str, Any]:
    """Returns results.json: no perplexity is known, and where the model comes from is said."""
    from nplm_jax.runs import catalog, provenance

    return {
        'name': settings.name,
        'corpus': settings.corpus.name,
        'family': FAMILY,
        'vocabulary': vocabulary_size,
        'perplexity': dict.fromkeys(catalog.SPLITS),
        'seconds': 0.0,
        'imported': str(path.resolve()),
        'sha256': hashlib.sha256(read_bytes(str(path), path)).hexdigest(),
        'command': shlex.join(command),
        **provenance.provenance(),
    }


def write_run(
    folder: pathlib.Path,
    settings: Settings,
    vocabulary: Vocabulary,
    model: LanguageModel,
    results: dict[str, Any],
    files: Sequence[pathlib.Path],
) -> None:
    """Writes a run's folder; results.json comes last, because it makes the run a finished one.

    Args:
        folder: The folder; made unless it exists.
        settings: What config.json gets.
        vocabulary: The vocabulary.
        model: A count-based model.
        results: What results.json gets.
        files: Files to copy into the folder.

    Raises:
        BadInput: The folder cannot be written.
    """
    from nplm_jax import config as config_lib
    from nplm_jax.data import vocabulary as vocabulary_lib
    from nplm_jax.models.ngram import storage
    from nplm_jax.runs import catalog

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            if file.exists():
                shutil.copyfile(file, folder / file.name)
        vocabulary_lib.save(vocabulary, folder / catalog.VOCABULARY)
        storage.save(model, folder / storage.MODEL_FILE)
        write_atomically(folder / catalog.CONFIG, to_json(config_lib.to_record(settings), indent=2) + '\n')
        write_atomically(folder / catalog.RESULTS, to_json(results, indent=2) + '\n')
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None


def make_settings(path: pathlib.Path, n: int, vocabulary: Vocabulary) -> Settings:
    """Returns the settings of an imported run.

    Args:
        path: The file, which gives the name.
        n: The order of the model.
        vocabulary: Its vocabulary.
    """
    from nplm_jax import config as config_lib
    from nplm_jax.data.tokenizers.tokenizer import PARAGRAPH_BOUNDARY
    from nplm_jax.runs import workdir

    corpus = {
        'name': 'text',
        'tokens': 'whitespace',
        'lowercase': False,
        'split_possessive': False,
        'boundary_tokens': PARAGRAPH_BOUNDARY in vocabulary.ids,
    }
    model = {'family': FAMILY, 'n': max(n, 2)}
    return config_lib.from_config({'name': workdir.safe_folder_name(path.stem), 'corpus': corpus, 'model': model})
