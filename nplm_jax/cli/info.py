"""Shows the details of a run: its state, sizes, perplexities, training, files and config.

    nplm info runs/brown-mlp9
    nplm info runs/brown-mlp9 --json

The command reads only the run's folder, so it is fast and works even during training. It loads neither the model nor
plug-ins.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nplm_jax.cli.parser import Parser
from nplm_jax.config import plugins, records
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.settings import Settings
from nplm_jax.data import vocabulary_files
from nplm_jax.reporting import catalog
from nplm_jax.reporting.results import format_results
from nplm_jax.reporting.text import to_json


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs(1, loads=False)
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the details of the run."""
    run = catalog.read_run(catalog.expand_run(flags.runs[0]))
    words = run.folder / catalog.VOCABULARY
    info: dict[str, Any] = {'folder': str(run.folder), 'name': run.values['name'], 'state': run.state}
    info |= {'date': run.date, 'vocabulary': None, 'results': run.results or {}}
    if words.is_file():
        catalog.check_files(run.folder)
        is_plugin = plugins.is_path(run.values['corpus.tokens'])
        known = (vocabulary_files.load_words if is_plugin else vocabulary_files.load)(words)
        is_counted = any(known.counts)  # False for an ARPA file, which has no counts and may list words in any order
        info['vocabulary'] = {
            'size': len(known),
            'rare_share': known.counts[0] / sum(known.counts) if is_counted else None,
            'unit': 'tokens' if is_plugin or known.tokenizer.tokens else 'words',
            'most_frequent': list(known.shown[1:11]) if is_counted else None,
        }
    info['files'] = {p.name: _size(p) for p in sorted(run.folder.iterdir()) if not p.name.startswith('.')}
    info['config'] = {key: x for key, x in run.record.items() if key not in ('format', records.DIGESTS)}
    print(to_json(info) if flags.json else make_text(info, run.settings))


def make_text(info: Mapping[str, Any], settings: Settings) -> str:
    """Returns the text that the command prints."""
    results, words = info['results'], info['vocabulary']
    lines = [f'{info["name"]}: {info["state"]}, {info["date"]}; folder {info["folder"]}']
    if words:
        counted = 'training words' if settings.corpus.count_over == 'train' else 'text'
        rare = f', with <rare> as {words["rare_share"]:.1%} of the {counted}' if words['rare_share'] else ''
        frequent = f'; {" ".join(words["most_frequent"])} ...' if words['most_frequent'] else ''
        lines.append(f'vocabulary: {words["size"]:,} {words["unit"]}{rare}{frequent}')
    files = (f'{name} ({size / 1e6:,.1f} MB)' if size >= 1e5 else name for name, size in info['files'].items())
    lines.append(f'files: {", ".join(files)}')
    if results and not results.get('imported'):
        lines.append(format_results(results, settings.paper, settings.corpus))
    for part in ('results', 'config'):
        lines += [f'{part}:', *(f'  {key} = {value!r}' for key, value in flatten(info[part]).items())]
    return '\n'.join(lines)


def _size(path: Path) -> int:
    """Returns the size of a file, or of all files in a folder, in bytes."""
    return sum(file.stat().st_size for file in (path, *path.rglob('*')) if file.is_file())
