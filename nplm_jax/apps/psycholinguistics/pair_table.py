"""Tables of minimal pairs: which column holds what, checked before a model is loaded."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from nplm_jax.apps.psycholinguistics import minimal_pairs, stimulus_files
from nplm_jax.apps.psycholinguistics.stimuli import Columns, Place, Stimuli, strip_punctuation
from nplm_jax.utils.errors import BadInput, require

SUFFIXES = (*stimulus_files.SUFFIXES, '.jsonl')
DEFAULT_COLUMNS = (('good', 'bad'), ('sentence_good', 'sentence_bad'))  # the second are BLiMP's


class Names(NamedTuple):
    """The names of columns, empty where a table has none.

    Attributes:
        sentences: Those of the good and of the bad sentence; empty for the ones of DEFAULT_COLUMNS.
        group: That of the groups, such as paradigms.
        regions: Those of the regions of the good and of the bad sentence.
    """

    sentences: tuple[str, str] = ('', '')
    group: str = ''
    regions: tuple[str, str] = ('', '')


class PairTable(NamedTuple):
    """A table with one row a pair.

    Attributes:
        columns: All columns.
        stimuli: The sentences, the good one of each pair before the bad one.
        groups: The group of each pair; that of all is '' without a column of groups.
        regions: The words of the region in each sentence; empty without columns of regions.
    """

    columns: Columns
    stimuli: Stimuli
    groups: Sequence[str]
    regions: Sequence[slice]


def read(path: pathlib.Path, names: Names) -> PairTable:
    """Reads a table of pairs.

    Raises:
        BadInput: The file cannot be read, a column is missing, a pair has one sentence, or a region is not once in its
            sentence. The message names file, row and column.
    """
    require(path.suffix.lower() in SUFFIXES, '--table', str(path), f'must end in {", ".join(SUFFIXES)}')
    columns, place = stimulus_files.read_columns(path)
    place = place or (lambda row: f'{path}, row {row + 1:,}')
    fallback = next((pair for pair in DEFAULT_COLUMNS if set(pair) <= set(columns)), DEFAULT_COLUMNS[0])
    good, bad = (name or default for name, default in zip(names.sentences, fallback))
    flags = 'good', 'bad', 'group', 'region_good', 'region_bad'
    for flag, name in zip(flags, (good, bad, names.group, *names.regions)):
        has = ', '.join(map(repr, columns)) or 'none'
        allowed = f'{path} has no such column; it has {has}; --{flag}=COLUMN names another'
        require(not name or name in columns, f'--{flag}', name, allowed)
    require(good != bad, '--bad', bad, 'is the column of the good sentences too')
    if not len(columns[good]):
        raise BadInput(path, 'no row')
    for row in range(len(columns[good])):
        for name, other in ((good, bad), (bad, good)):
            if not _text(columns[name][row]).strip():
                raise BadInput(f'{place(row)}, column {name!r}', f'empty; a pair has two sentences, as in {other!r}')
    pairs = [(_text(a), _text(b)) for a, b in zip(columns[good], columns[bad])]
    stimuli = minimal_pairs.to_stimuli(pairs, place)
    groups = [_text(cell) for cell in columns[names.group]] if names.group else [''] * len(pairs)
    return PairTable(columns, stimuli, groups, _find_regions(columns, stimuli, names.regions, place))


def _text(cell: Any) -> str:
    return '' if cell is None else str(cell)


def _find_regions(columns: Columns, stimuli: Stimuli, names: Sequence[str], place: Place) -> list[slice]:
    """Returns the words of the region of each sentence."""
    if not any(names):
        return []
    found = []
    for item, rows in enumerate(stimuli.items):
        row, name = item // 2, names[item % 2]
        region = _text(columns[name][row]).split()
        words = [stimuli.words[i] for i in rows]
        bare = [list(map(strip_punctuation, some)) for some in (words, region)]
        starts = _starts(words, region) or _starts(*bare)
        if len(starts) != 1:
            times = f'stands {len(starts)} times in {" ".join(words)!r}' if region else 'empty'
            raise BadInput(
                f'{place(row)}, column {name!r}', f'{" ".join(region)!r} {times}; expected whole words, once'
            )
        found.append(slice(starts[0], starts[0] + len(region)))
    return found


def _starts(words: Sequence[str], region: Sequence[str]) -> list[int]:
    """Returns the places in a sentence at which a region begins."""
    size = len(region)
    return [i for i in range(len(words) - size + 1) if size and words[i : i + size] == region]
