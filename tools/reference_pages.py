"""Generates parts of the documentation. `python -m tools.reference_pages` writes these parts into the pages.

A generated part of a page is enclosed by `<!-- NAME: python -m tools.reference_pages writes this -->` and `<!-- end
-->`.
"""

import argparse
import ast
import contextlib
import pathlib
import re
from collections.abc import Mapping, Sequence

import jax
from absl import flags

from nplm_jax.cli import launch
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config
from nplm_jax.config.component import KIND, key_fields
from nplm_jax.config.keys import Key, list_keys
from nplm_jax.config.registry import KINDS, NETWORKS, component_class
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput
from tests.helpers import SPARSE, small_settings

OUTPUT_KINDS = tuple(KINDS['output.kind'].paths)
_PLUGIN = 'optax:lion'  # an example of optimizers named by import path
ROOT = pathlib.Path(__file__).parents[1]
PART = re.compile(r'(<!-- (\w+): python -m tools\.reference_pages writes this -->\n\n).*?(\n\n<!-- end -->)', re.DOTALL)
ROOMS = tuple(
    'utils config executors data distributed nn outputs models ngram inference training reporting runs kenlm cli apps '
    'decoding lm_eval'.split()
)  # from bottom to top


def config_keys() -> str:
    """Returns a heading, a sentence and a table of keys for each section. Excludes the keys of components."""
    settings = config.from_config({})
    of_components = {key.name for kind in KINDS for key in component_keys(kind, KINDS[kind].default)}
    keys = [key for key in list_keys(settings) if key.name not in of_components | KINDS.keys()]
    blocks = ['## The run', _key_table({key: () for key in keys if '.' not in key.name})]
    for section in dict.fromkeys(key.name.partition('.')[0] for key in keys if '.' in key.name):
        summary = (type(getattr(settings, section)).__doc__ or '').partition(': ')[2].partition('\n')[0]
        blocks += [f'## {section}.*', f'{summary[:1].upper()}{summary[1:]}']
        blocks.append(_key_table({key: () for key in keys if key.name.startswith(f'{section}.')}))
    return '\n\n'.join(blocks)


def components() -> str:
    """Returns a table of components and a table of their keys for each key that names a component."""
    blocks = []
    for kind, components in KINDS.items():
        keys: dict[Key, list[str]] = {}
        rows = []
        for name in [*components.paths, *([_PLUGIN] if components.takes_functions else [])]:
            found, shown = component_class(kind, name), f'`{name}`' if name != _PLUGIN else 'an import path'
            fields = ', '.join(f'`{field.name}`' for field in key_fields(found))
            rows.append([shown, escape_cell((found.__doc__ or '').partition('\n')[0]), fields])
            for key in component_keys(kind, name):
                keys.setdefault(key, []).append(shown)
        blocks += [f'### {kind}', f'The default is `{components.default}`.']
        blocks += [table(['component', 'description', 'keys'], rows), _key_table(keys)]
    return '\n\n'.join(filter(None, blocks))


def component_keys(kind: str, name: str) -> list[Key]:
    """Returns the keys of a component, excluding keys of nested components."""
    fields = (field for field in key_fields(component_class(kind, name)) if KIND not in field.metadata)
    own = {f'{kind.partition(".")[0]}.{field.name}' for field in fields}
    return [key._replace(value=None) for key in list_keys(config.from_config({kind: name})) if key.name in own]


def _key_table(keys: Mapping[Key, Sequence[str]]) -> str:
    """Returns a table of keys, given the components that have each key, or '' if there are no keys."""
    names = [key.name for key in keys]
    rows = []
    for key in sorted(keys, key=lambda key: names.index(key.name)):
        having = f'{", ".join(keys[key])}: ' if names.count(key.name) > 1 else ''
        rows.append([f'`{key.name}`', f'`{key.default!r}`', f'{having}{escape_cell(key.meaning)}'])
    return table(['key', 'default', 'meaning'], rows) if rows else ''


def launch_flags() -> str:
    """Returns a table of the flags of launch.py."""
    found = sorted(flags.FLAGS.get_key_flags_for_module(launch), key=lambda flag: flag.name)
    return table(
        ['flag', 'meaning'], [[f'`--{flag.name}`', escape_cell(' '.join(flag.help.split()))] for flag in found]
    )


def command_table() -> str:
    """Returns a table of the commands of nplm, with their required arguments and other flags."""
    rows = []
    for name, entry in all_commands().items():
        needed, flags = ['nplm', name], []
        for action in entry.parser(name)._actions:
            value = str(action.metavar or '|'.join(action.choices or [action.dest.upper()]))
            if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
                continue
            if action.option_strings and not action.required:
                flags.append(f'`{action.option_strings[-1]}`')
            else:
                more = [f'[{value} ...]'] if action.nargs in ('*', '+') else []
                value = f'[{value}]' if action.nargs == '?' and action.default else value
                needed += [*action.option_strings[-1:], value, *more]
        rows.append([f'`{escape_cell(" ".join(needed))}`', ' '.join(flags)])
    return table(['command', 'other flags'], rows)


def commands() -> str:
    """Returns a heading, a description and a table of arguments for each command of nplm."""
    parts = []
    for name, entry in all_commands().items():
        command = entry.parser(name)
        formatter = command._get_formatter()
        rows = []
        for action in command._actions:
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                argument = formatter._format_action_invocation(action)
                if action.option_strings and action.nargs != 0:  # as Python 3.13 formats it
                    argument = (
                        f'{", ".join(action.option_strings)} {formatter._format_args(action, action.dest.upper())}'
                    )
                meaning = ' '.join(formatter._expand_help(action).split())
                rows.append([f'`{argument}`', escape_cell(meaning)])
        text = f'{(command.description or "").strip()}\n\n{command.epilog or ""}'.rstrip()
        parts += [f'### nplm {name}', f'~~~text\n{text}\n~~~']
        parts.append(table(['argument', 'meaning'], rows))
    return '\n\n'.join(parts)


def modules() -> str:
    """Returns a table of the modules in each subpackage, with the first lines of their docstrings."""
    parts = []
    for room in ROOMS:
        folder = ROOT / 'nplm_jax' / room
        files = [folder.with_suffix('.py')] if not folder.is_dir() else sorted(folder.rglob('*.py'))
        rows = []
        for file in files:
            path = file.relative_to(ROOT).as_posix()
            summary = (ast.get_docstring(ast.parse(file.read_text())) or '').partition('\n')[0]
            rows.append([f'[{path}](../../{path})', escape_cell(summary)])
        parts.append(f'## {room}\n\n{table(["module", "description"], rows)}')
    return '\n\n'.join(parts)


def outputs_of_bodies() -> str:
    """Returns a table of the output layers that each body supports, without and, where possible, with weight tying."""
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
    """Returns the names of the output matrices for each output layer that a body supports."""
    found = {}
    for kind in OUTPUT_KINDS:
        changes = {'model.family': body, 'model.tied': tied, 'output.kind': kind, 'model.m': 6, 'model.h': 8}
        streams = {'model.direct': False, 'train.batch_size': 16, 'model.bptt_length': 4}
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
    """Escapes a text for use in a cell of a Markdown table."""
    return text.replace('|', '\\|').replace('<', '\\<').replace('*', '\\*')


MAKERS = {
    'config_keys': config_keys,
    'components': components,
    'launch_flags': launch_flags,
    'command_table': command_table,
    'commands': commands,
    'modules': modules,
    'outputs_of_bodies': outputs_of_bodies,
}
PAGES = ('docs/architecture.md', *(f'docs/reference/{name}.md' for name in ('config', 'commands', 'api')))


def parts(page: str) -> dict[str, tuple[str, str]]:
    """Returns the current and the generated text of each generated part of a page, by name."""
    text = (ROOT / page).read_text()
    found = {match[2]: match[0].removeprefix(match[1]).removesuffix(match[3]) for match in PART.finditer(text)}
    return {name: (written, MAKERS[name]()) for name, written in found.items()}


def write(page: str) -> None:
    """Writes the generated parts of a page."""
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(PART.sub(lambda match: f'{match[1]}{MAKERS[match[2]]()}{match[3]}', text))


if __name__ == '__main__':
    for page in PAGES:
        write(page)
