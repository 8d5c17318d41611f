"""Sphinx directives of this site: the config's keys, and the help of the commands.

`config-keys` prints a table for each section of configs/default.py, `launch-help` the flags of launch.py, and
`command-help` what `nplm COMMAND --help` prints. They are made at build time, so they cannot differ from the program.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from absl import flags
from config_keys import sections
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import launch
from nplm_jax.cli import __main__ as cli
from nplm_jax.utils.text import markdown_table

os.environ['COLUMNS'] = '100'  # the width of argparse's help


class ConfigKeys(SphinxDirective):
    """A heading, a sentence and a table for each section of the config."""

    def run(self) -> list[nodes.Node]:
        """Returns the sections."""
        parts = []
        for summary, keys in sections().items():
            rows = [[f'`{key.name}`', f'`{key.default}`', escape_cell(key.meaning)] for key in keys]
            prefix = keys[0].name.rpartition('.')[0]
            table = markdown_table(['key', 'default', 'meaning'], rows)
            parts += [f'## {f"{prefix}.*" if prefix else "The run"}', f'{summary[:1].upper()}{summary[1:]}', table]
        return self.parse_text_to_nodes('\n\n'.join(parts), allow_section_headings=True)


class LaunchHelp(SphinxDirective):
    """A table of the flags of launch.py."""

    def run(self) -> list[nodes.Node]:
        """Returns the table."""
        found = sorted(flags.FLAGS.get_key_flags_for_module(launch), key=lambda flag: flag.name)
        rows = [[f'`--{flag.name}`', escape_cell(flag.help)] for flag in found]
        return self.parse_text_to_nodes(markdown_table(['flag', 'meaning'], rows))


class CommandHelp(SphinxDirective):
    """A heading for each command of nplm, and what it prints under --help."""

    def run(self) -> list[nodes.Node]:
        """Returns the sections."""
        parts = []
        for command in cli.COMMANDS:
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
                cli.main([command, '--help'])
            parts.append(f'### nplm {command}\n\n~~~text\n{text.getvalue()}~~~')
        return self.parse_text_to_nodes('\n\n'.join(parts), allow_section_headings=True)


def escape_cell(text: str) -> str:
    """Returns a text for a cell of a Markdown table."""
    return text.replace('|', '\\|').replace('<', '\\<').replace('*', '\\*')


def link_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turns links to files of the package into links to the site's pages of their sources."""
    for node in list(doctree.findall(addnodes.download_reference)):
        path = node['reftarget'].partition('nplm_jax/')[2]
        if path.endswith('.py') and app.builder.format == 'html':
            page = app.builder.get_relative_uri(docname, f'_modules/nplm_jax/{path.removesuffix(".py")}')
            anchor = '' if '/' in node.astext() or node.astext().startswith('_') else f'#{node.astext()}'
            node.replace_self(nodes.reference('', '', *node.children, refuri=f'{page}{anchor}', internal=True))


def escape(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    r"""Keeps |V| and `\data\` in a docstring from being read as reStructuredText's substitutions and escapes."""
    lines[:] = [line.replace('\\', '\\\\').replace('|', '\\|') for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives."""
    app.add_directive('config-keys', ConfigKeys)
    app.add_directive('launch-help', LaunchHelp)
    app.add_directive('command-help', CommandHelp)
    app.connect('autodoc-process-docstring', escape, priority=400)  # before napoleon
    app.connect('doctree-resolved', link_sources)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
