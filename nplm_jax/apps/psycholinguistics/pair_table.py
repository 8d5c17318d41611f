"""Reading and validation of tables of minimal pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nplm_jax.apps.psycholinguistics import minimal_pairs, tables
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli, strip_punctuation
from nplm_jax.apps.psycholinguistics.tables import Columns, Locate
from nplm_jax.utils.errors import BadInput, require

DEFAULT_COLUMNS = (('good', 'bad'), ('sentence_good', 'sentence_bad'))  # ours, and those of BLiMP


class PairTable(NamedTuple):
    """A table with one row per pair.

    Attributes:
        columns: All columns.
        stimuli: The sentences as items: good, bad, good, bad, ...
        groups: The group of each pair; '' if there is no column of groups.
        regions: The slice of words of each sentence that forms its region; empty if there are no columns of regions.
    """

    columns: Columns
    stimuli: Stimuli
    groups: Sequence[str]
    regions: Sequence[slice]


def read(
    table: str, sentences: tuple[str, str] = ('', ''), group: str = '', regions: tuple[str, str] = ('', '')
) -> PairTable:
    """Reads a table of pairs.

    Args:
        table: The file, the value of --table.
        sentences: The columns of the good and the bad sentences; empty for those in DEFAULT_COLUMNS.
        group: The column of groups, such as paradigms; empty for none.
        regions: The columns of the regions of the good and the bad sentences; empty for none.

    Raises:
        BadInput: The file cannot be read, a column is missing, a sentence is empty, or a region does not occur exactly
            once in its sentence. The key names the file, row and column.
    """
    columns, locate, path = tables.read(table)
    fallback = next((pair for pair in DEFAULT_COLUMNS if set(pair) <= set(columns)), DEFAULT_COLUMNS[0])
    good, bad = (name or default for name, default in zip(sentences, fallback))
    flags = '--good', '--bad', '--group', '--region_good', '--region_bad'
    for flag, name in zip(flags, (good, bad, group, *regions)):
        if name:
            tables.check_has(columns, path, flag, name, f'; {flag}=COLUMN names another')
    require(good != bad, '--bad', bad, 'is also given for --good; choose another column')
    pairs = [(_text(a), _text(b)) for a, b in zip(columns[good], columns[bad])]
    if not pairs:
        raise BadInput(path, 'has no rows')
    for row, pair in enumerate(pairs):
        for sentence, name, other in zip(pair, (good, bad), (bad, good)):
            if not sentence.strip():
                raise BadInput(f'{locate(row)}, column {name!r}', f'is empty, but {other!r} has a sentence')
    stimuli = minimal_pairs.to_stimuli(pairs, locate)
    groups = [_text(cell) for cell in columns[group]] if group else [''] * len(pairs)
    return PairTable(columns, stimuli, groups, _find_regions(columns, stimuli, regions, locate))


def _text(cell: Any) -> str:
    return '' if cell is None else str(cell)


def _find_regions(columns: Columns, stimuli: Stimuli, names: Sequence[str], locate: Locate) -> list[slice]:
    """Returns the slice of words of each sentence that forms its region; empty if there are no regions."""
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
            times = f'occurs {len(starts)} times in {" ".join(words)!r}' if region else 'is empty'
            problem = f'{" ".join(region)!r} {times}; must be whole words that occur once'
            raise BadInput(f'{locate(row)}, column {name!r}', problem)
        found.append(slice(starts[0], starts[0] + len(region)))
    return found


def _starts(words: Sequence[str], region: Sequence[str]) -> list[int]:
    """Returns the indices in a sentence at which a region begins."""
    size = len(region)
    return [i for i in range(len(words) - size + 1) if size and words[i : i + size] == region]
