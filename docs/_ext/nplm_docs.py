"""A Sphinx extension that links source files to their pages on the site and preserves |V| in docstrings.

The pages themselves contain the tables of keys, commands and modules, which `python -m tools.reference_pages` writes.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


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
    """Registers `escape` and `link_sources`."""
    app.connect('autodoc-process-docstring', escape, priority=400)  # before napoleon
    app.connect('doctree-resolved', link_sources)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
