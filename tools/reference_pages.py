"""The generated parts of the documentation; `python -m tools.reference_pages` writes them into the pages.

Such a part of a page stands between `<!-- NAME: python -m tools.reference_pages writes this -->` and `<!-- end -->`.
"""

import argparse
import ast
import contextlib
import functools
import importlib
import itertools
import pathlib
import re
from unittest import mock

import jax
from absl import flags

from nplm_jax.cli import launch, parser
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config
from nplm_jax.config.parts import part_class
from nplm_jax.config.registry import NETWORKS, PARTS
from nplm_jax.config.sections import READS
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput
from tests.helpers import SPARSE, small_settings

OUTPUT_KINDS = tuple(PARTS['output.kind'].paths)
ROOT = pathlib.Path(__file__).parents[1]
PART = re.compile(r'(<!-- (\w+): python -m tools\.reference_pages writes this -->\n\n).*?(\n\n<!-- end -->)', re.DOTALL)
ROOMS = tuple(
    'utils config executors data distributed nn outputs models ngram inference training reporting runs sweeps cli apps '
    'kenlm decoding lm_eval'.split()
)  # upward


def config_keys() -> str:
    """Returns a heading, a sentence and a table for each section of the config."""
    parts = []
    for prefix, names in itertools.groupby(config.FIELDS, lambda name: name.rpartition('.')[0]):
        section = functools.reduce(getattr, filter(None, prefix.split('.')), config.Settings())
        summary = (type(section).__doc__ or '').partition(': ')[2].partition('\n')[0]
        parts += [f'## {prefix}.*', f'{summary[:1].upper()}{summary[1:]}'] if prefix else ['## The run']
        fields = [(name, config.FIELDS[name]) for name in names]
        rows = [[f'`{name}`', f'`{field.default!r}`', escape_cell(field.metadata['meaning'])] for name, field in fields]
        parts.append(table(['key', 'default', 'meaning'], rows))
    return '\n\n'.join(parts)


def parts_of_a_run() -> str:
    """Returns for each key that names a part a table of its values, with what they are and the keys that they read."""
    tables = []
    for key, kind in PARTS.items():
        rows = []
        for name in kind.paths:
            summary = (part_class(key, name).__doc__ or '').partition('\n')[0]
            read = ', '.join(f'`{read_key}`' for read_key in READS[key][name] if read_key != key)
            rows.append([f'`{name}`', escape_cell(summary), read])
        tables += [f'### {key}', table(['value', 'what it is', 'keys that it reads'], rows)]
    return '\n\n'.join(tables)


def launch_flags() -> str:
    """Returns a table of the flags of launch.py."""
    found = sorted(flags.FLAGS.get_key_flags_for_module(launch), key=lambda flag: flag.name)
    return table(
        ['flag', 'meaning'], [[f'`--{flag.name}`', escape_cell(' '.join(flag.help.split()))] for flag in found]
    )


def commands() -> str:
    """Returns for each command of nplm a heading, its description, and a table of its arguments."""
    parts = []
    for name in all_commands():
        command = read_parser(name)
        formatter = command._get_formatter()
        rows = []
        for action in command._actions:
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                argument = formatter._format_action_invocation(action)
                meaning = ' '.join(formatter._expand_help(action).split())
                rows.append([f'`{argument}`', escape_cell(meaning)])
        parts += [f'### nplm {name}', f'~~~text\n{(command.description or "").strip()}\n~~~']
        parts.append(table(['argument', 'meaning'], rows))
    return '\n\n'.join(parts)


def read_parser(name: str) -> parser.Parser:
    """Returns the parser of a command of nplm, as it is when it parses."""
    read: list[parser.Parser] = []

    def parse_args(self: parser.Parser, *_: object) -> None:
        read.append(self)
        raise SystemExit

    with mock.patch.object(parser.Parser, 'parse_args', parse_args), contextlib.suppress(SystemExit):
        importlib.import_module(all_commands()[name].module).main([])
    return read[0]


def modules() -> str:
    """Returns a table of the modules of each room, with the first line of their docstrings."""
    parts = []
    for room in ROOMS:
        folder = ROOT / 'nplm_jax' / room
        files = [folder.with_suffix('.py')] if not folder.is_dir() else sorted(folder.rglob('*.py'))
        rows = []
        for file in files:
            path = file.relative_to(ROOT).as_posix()
            summary = (ast.get_docstring(ast.parse(file.read_text())) or '').partition('\n')[0]
            rows.append([f'[{path}](../../{path})', escape_cell(summary)])
        parts.append(f'## {room}\n\n{table(["module", "what it has"], rows)}')
    return '\n\n'.join(parts)


def outputs_of_bodies() -> str:
    """Returns a table that says which output layers a body can have, also with tied weights where it can tie them."""
    rows = []
    for body in NETWORKS:
        free, tied = (_outputs_of(body, is_tied) for is_tied in (False, True))
        rows.append([f'`{body}`', *('yes' if kind in free else 'no' for kind in OUTPUT_KINDS)])
        if tied and set(tied.values()) != set(free.values()):  # C is an output matrix
            rows.append(
                [
                    f'`{body}`, `model.tied`',
                    *('yes' if kind in tied else 'no' for kind in OUTPUT_KINDS),
                ]
            )
    return table(['body', *(f'`{kind}`' for kind in OUTPUT_KINDS)], rows)


def _outputs_of(body: str, tied: bool) -> dict[str, tuple[str, ...]]:
    """Returns the names of the output matrices by each output layer that a body can have."""
    found = {}
    for kind in OUTPUT_KINDS:
        changes = {'model.family': body, 'model.tied': tied, 'output.kind': kind, 'model.m': 6, 'model.h': 8}
        streams = {'model.direct': False, 'train.batch_size': 16, 'train.bptt_length': 4}
        with contextlib.suppress(BadInput):
            network = network_from_settings(small_settings({**SPARSE, **streams, **changes}), 18)
            jax.eval_shape(network.init, jax.random.key(0))
            found[kind] = tuple(network.body.widths)
    return found


def table(header: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table without padding, so that a changed cell changes one line."""
    rule = f'|{"---|" * len(header)}'
    return '\n'.join([f'| {" | ".join(header)} |', rule, *(f'| {" | ".join(row)} |' for row in rows)])


def escape_cell(text: str) -> str:
    """Returns a text for a cell of a Markdown table."""
    return text.replace('|', '\\|').replace('<', '\\<').replace('*', '\\*')


MAKERS = {
    'config_keys': config_keys,
    'parts_of_a_run': parts_of_a_run,
    'launch_flags': launch_flags,
    'commands': commands,
    'modules': modules,
    'outputs_of_bodies': outputs_of_bodies,
}
PAGES = ('CONTRIBUTING.md', *(f'docs/reference/{name}.md' for name in ('config', 'commands', 'api')))


def parts(page: str) -> dict[str, tuple[str, str]]:
    """Returns what stands in each such part of a page, and what the code says, by its name."""
    text = (ROOT / page).read_text()
    found = {match[2]: match[0].removeprefix(match[1]).removesuffix(match[3]) for match in PART.finditer(text)}
    return {name: (written, MAKERS[name]()) for name, written in found.items()}


def write(page: str) -> None:
    """Writes what the code says into the parts of a page."""
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(PART.sub(lambda match: f'{match[1]}{MAKERS[match[2]]()}{match[3]}', text))


if __name__ == '__main__':
    for page in PAGES:
        write(page)
