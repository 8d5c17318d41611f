"""Finds runs and reads the files that describe them. This module does not import JAX."""

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import digests_of, read_values, to_record
from nplm_jax.config.settings import Settings
from nplm_jax.data.tokenizers.tokenizer import CONFIG_FILE, RULES_FILE
from nplm_jax.reporting import packed
from nplm_jax.reporting.shell import command_line, nplm_command
from nplm_jax.reporting.text import null_to_inf
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.names import did_you_mean
from nplm_jax.utils.untrusted import ANY_KEY, Schema, matches_schema, read_bytes, read_json, sha256

RUNS = 'runs'  # default parent folder of runs
# The names of the files in a run folder.
CONFIG, CORPUS, VOCABULARY = 'config.json', 'corpus.json', 'vocabulary.txt'
MINUTES = 'minutes.json'  # the network that `--minutes` chose
RESULTS, METRICS = 'results.json', 'metrics.jsonl'
SPELLING = 'spelling'  # the run of a spelling model, inside the run folder
SPLITS = ('train', 'valid', 'test')
PER_UNIT = ('perplexity_per_word', 'bits_per_character', 'bits_per_byte')  # keys of results.json

NUMBER, INFINITE = (int, float), (int, float, type(None))  # null stands for infinity
_HELD_OUT = dict.fromkeys(SPLITS[1:], INFINITE)
_REQUIRED: Mapping[str, Schema] = {'name': (str,), 'seconds': NUMBER, 'perplexity': dict.fromkeys(SPLITS, INFINITE)}
_OPTIONAL: Mapping[str, Schema] = {
    'mixture': {ANY_KEY: _HELD_OUT},
    'oov': dict.fromkeys(SPLITS[1:], NUMBER),
    **dict.fromkeys(('vocabulary', 'parameters', 'evaluated_train_words', 'calibration_words'), (int,)),
    **dict.fromkeys(('words', 'impossible_words'), {ANY_KEY: (int,)}),
    'versions': {ANY_KEY: (str,)},
    'origins': [{'versions': {ANY_KEY: (str,)}}],
    'sizes': {ANY_KEY: {ANY_KEY: (int,)}},
    'sample': {'words': dict.fromkeys(SPLITS[1:], (int,)), 'standard_error': _HELD_OUT},
    **dict.fromkeys(PER_UNIT, {ANY_KEY: INFINITE}),
}
_DEPTH = 3  # maximum depth of a run below the searched folder: runs/SWEEP/POINT
_MAX_SUGGESTED = 8


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, as described by the files in its folder.

    Attributes:
        folder: The folder.
        record: The content of config.json.
        values: The values of the config, by flattened key.
        results: The content of results.json. None for an unfinished run.
    """

    folder: pathlib.Path
    record: dict[str, Any]
    values: dict[str, Any]
    results: dict[str, Any] | None

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings. Reading them imports JAX but no plug-ins, and raises BadInput if a value is invalid."""
        try:
            with plugins.importing_none():
                return config_lib.from_record(self.record)
        except BadInput as error:
            raise BadInput(self.folder / CONFIG, f'cannot be read ({error})') from None

    @property
    def imported(self) -> bool:
        """Whether the model was imported and has no recorded perplexity."""
        return bool(self.results and self.results.get('imported'))

    @property
    def state(self) -> str:
        """The state of the run: `finished`, `imported` or `not finished`."""
        return 'imported' if self.imported else 'finished' if self.results else 'not finished'

    @property
    def date(self) -> str:
        """The modification time, in local time, of the first file that exists: the results, metrics or config."""
        files = (file for name in (RESULTS, METRICS, CONFIG) if (file := self.folder / name).exists())
        try:
            return datetime.datetime.fromtimestamp(next(files).stat().st_mtime).strftime('%Y-%m-%d %H:%M')
        except (OverflowError, ValueError, OSError):  # a date beyond the year 9999
            return 'unknown'

    def perplexity(self, split: str) -> float | None:
        """Returns the recorded perplexity of a split. Returns None if there is no record, and infinity for a null."""
        if self.results is None or self.imported:
            return None
        return null_to_inf(self.results['perplexity'][split])

    @property
    def bits_per_byte(self) -> float | None:
        """The recorded bits per byte of the test text. None if not recorded, as for texts with unknown words."""
        bits = (self.results or {}).get('bits_per_byte', {})
        return null_to_inf(bits['test']) if 'test' in bits else None

    @property
    def text(self) -> str:
        """An identifier of the evaluated words, vocabulary and splits. Comparable runs have the same identifier.

        The value joins the digest in corpus.json (or the path of the run) and the number of words in each sample. The
        number of scored words is added if it differs by over 0.1% from corpus.json: runs by lines skip `<text>`.
        """
        results = self.results or {}
        sample, counts = results.get('sample', {}).get('words', 'all words'), (self._corpus, results)
        words, read = (sum(x.get('words', {}).get(split, 0) for split in SPLITS[1:]) for x in counts)
        others = f', {read} words' if read and 1000 * abs(read - words) > words else ''
        return f'{self._corpus.get("sha256") or self.folder.resolve()}, {sample}{others}'

    def has_test_text_of(self, other: 'Run') -> bool:
        """Returns whether two runs were evaluated on the same complete test text, regardless of tokenization.

        Returns False if a digest is not recorded. Digests do not cover whitespace, so the recorded sizes must also
        agree: the word counts must be equal, and the byte counts may differ by at most 1%.
        """
        digests = [run._corpus.get('test_sha256') for run in (self, other)]
        is_sampled = any((run.results or {}).get('sample') for run in (self, other))
        sizes = [(run.results or {}).get('sizes', {}).get('test', {}) for run in (self, other)]
        words, num_bytes = ([size[key] for size in sizes if key in size] for key in ('words', 'utf8_bytes'))
        is_one_size = len({*words}) < 2 and max(num_bytes, default=0) <= 1.01 * min(num_bytes, default=0)
        return bool(digests[0]) and digests[0] == digests[1] and is_one_size and not is_sampled

    @functools.cached_property
    def _corpus(self) -> dict[str, Any]:
        """The content of corpus.json. Empty if the file is missing or damaged."""
        record = _read_or_empty(self.folder / CORPUS)
        return record if matches_schema(record, {'words': {ANY_KEY: (int,)}}) else {}


def find_run(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a run or a packed model. A name without a folder is also looked up in `runs/`."""
    path = expand('RUN', folder)
    return known if not path.exists() and (known := pathlib.Path(RUNS) / path).exists() else path


def expand_run(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the folder of a run. Unpacks a packed model into the cache. For names, see `find_run`.

    Raises:
        BadInput: A packed model is unreadable or damaged.
    """
    path = find_run(folder)
    return packed.unpack(path) if packed.is_packed(path) else path


def split_names(value: str) -> list[str]:
    """Splits comma-separated runs. If names contain commas, prefers the longest name of an existing run.

    Args:
        value: The runs, in the form that `expand_run` accepts.
    """
    words, names = value.split(','), []
    while words:
        size = next((n for n in range(len(words), 0, -1) if exists(','.join(words[:n]))), 1)
        names.append(','.join(words[:size]))
        words = words[size:]
    return names


def split_runs(key: str, value: str) -> list[pathlib.Path]:
    """Returns the folders of comma-separated finished runs. See `split_names`.

    Args:
        key: The config key or flag, for error messages.
        value: The runs.

    Raises:
        BadInput: A folder is not a finished run, or a run occurs twice.
    """
    folders = [expand_run(name) for name in split_names(value)]
    for folder in folders:
        if not is_finished(folder):
            raise BadInput(key, f'{str(folder)!r} is not a finished run; {suggest(folder)}', value=value)
    require(len({folder.resolve() for folder in folders}) == len(folders), key, value, 'must not name a run twice')
    return folders


def exists(run: str) -> bool:
    """Returns whether the path of a run exists. Returns False for invalid paths."""
    try:
        return expand_run(run).exists()
    except BadInput:
        return False


def is_finished(folder: pathlib.Path) -> bool:
    """Returns whether a folder is a finished run."""
    return (folder / CONFIG).is_file() and finished(folder) is not None


def finished(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns the results of a finished run, or None if they are missing or incomplete."""
    results = _read_or_empty(folder / RESULTS)
    return results if is_complete(results) else None


def _read_or_empty(file: pathlib.Path) -> dict[str, Any]:
    """Returns the content of a JSON file. Returns an empty dictionary if the file is missing or damaged."""
    try:
        return read_json(file)
    except BadInput:
        return {}


def digest(folder: pathlib.Path) -> str:
    """Returns a SHA-256 digest of the files that describe a finished run: config, text, vocabulary and results.

    Moving the folder does not change the digest. Training again does, because results.json contains times. The path of
    a text and similar keys of config.json are not covered.

    Raises:
        BadInput: A file cannot be read.
    """
    total = hashlib.sha256(json.dumps(digests_of(read_json(folder / CONFIG)), sort_keys=True).encode())
    for path in (folder / name for name in (CORPUS, VOCABULARY, RESULTS)):
        content = read_bytes(str(path), path) if path.exists() else b''  # an imported run may have no corpus.json
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def write_config(folder: pathlib.Path, settings: Settings) -> None:
    """Writes config.json, which marks a folder as a run, with digests of the files required to read the model.

    These files must already exist. Checkpoints and the arrays of count-based models contain their own digests.
    """
    names = (CORPUS, VOCABULARY, CONFIG_FILE, RULES_FILE, *config_lib.user_files(settings))
    digests = {name: sha256(str(folder / name), folder / name) for name in names if (folder / name).exists()}
    write_atomically(folder / CONFIG, json.dumps(to_record(config_lib.to_dict(settings), digests), indent=2) + '\n')


def check_files(folder: pathlib.Path) -> None:
    """Raises BadInput unless the files match the digests recorded by `write_config`."""
    for name, digest in digests_of(read_json(folder / CONFIG)).items():
        if name != CONFIG and sha256(str(folder / name), folder / name) != digest:
            problem = f'is damaged (its SHA-256 does not match {CONFIG}); restore the file or train in another folder'
            raise BadInput(folder / name, problem)


def read_run(folder: pathlib.Path) -> Run:
    """Reads the files that describe a run.

    Raises:
        BadInput: The folder is not a run, or its files are damaged.
    """
    if not (folder / CONFIG).is_file():
        raise BadInput('RUN', f'is not a run; {suggest(folder)}', value=str(folder))
    try:
        values = read_values(record := read_json(folder / CONFIG))
    except BadInput as error:
        raise BadInput(folder / CONFIG, f'cannot be read ({error})') from None
    results = read_json(folder / RESULTS) if (folder / RESULTS).is_file() else None
    if results is not None and not is_complete(results):
        raise BadInput(f'{folder / RESULTS}', 'is damaged; run the training command again to repeat the evaluation')
    return Run(folder, record, values, results)


def find(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of runs at or below `root`, sorted by name. Links are not followed."""
    runs = []
    for path, folders, files in os.walk(root):
        if CONFIG in files:
            runs.append(pathlib.Path(path))
        is_deep = len(pathlib.Path(path).relative_to(root).parts) >= _DEPTH
        folders[:] = [] if is_deep or CONFIG in files else sorted(f for f in folders if not f.startswith('.'))
    return runs


def suggest(wrong: pathlib.Path) -> str:
    """Suggests alternatives to a path without a run, such as the finished runs below the path or below runs/."""
    if wrong.is_file() and wrong.suffix.lower() == '.arpa':
        run = f'{RUNS}/{wrong.stem}'
        to_run = command_line([*nplm_command(), 'import', wrong, f'--workdir={run}'])
        return f'the path is an ARPA file; import it with: {to_run}; then use {shlex.quote(run)}'
    if wrong.is_file():
        return f'the path is a file; to score its text, run: nplm score RUN < {shlex.quote(str(wrong))}'
    lists = ([str(f) for f in find(root) if is_finished(f)] for root in (wrong, pathlib.Path(RUNS)))
    missing = '' if wrong.exists() else f'{wrong.absolute()} does not exist; '
    if not (runs := next(filter(None, lists), [])):
        return f'{missing}train a run with: {command_line([*nplm_command(), "train", "sentences"])}'
    more = f' and {len(runs) - _MAX_SUGGESTED} more (nplm runs)' if len(runs) > _MAX_SUGGESTED else ''
    return f'{missing}finished runs: {", ".join(runs[:_MAX_SUGGESTED])}{more}{did_you_mean(wrong, runs)}'


def is_complete(results: Mapping[str, Any]) -> bool:
    """Returns whether the content of results.json has all entries of a finished run, with the right types."""
    schema = {**_REQUIRED, **{key: schema for key, schema in _OPTIONAL.items() if key in results}}
    return matches_schema(results, schema) and len({frozenset(results.get(key, ())) for key in PER_UNIT}) == 1
