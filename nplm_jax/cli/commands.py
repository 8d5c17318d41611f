"""Registers the `nplm` commands: the core commands, followed by those of the packages in nplm_jax.apps."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.cli.parser import Parser

_APPS = 'nplm_jax.apps'  # its packages are found by listing its folder, because the core does not import apps


class Command(NamedTuple):
    """A command whose module is imported on first use.

    The module defines the functions `define(parser)`, which adds the flags, and `main(flags)`, which runs the command.
    The module's docstring is the help text.
    """

    module: str
    summary: str

    def parser(self, name: str) -> Parser:
        """Returns the parser of the command with this name."""
        module = importlib.import_module(self.module)
        parser = Parser(name, module.__doc__)
        module.define(parser)
        return parser

    def run(self, name: str, arguments: Sequence[str]) -> None:
        """Parses the arguments that follow the command's name, and runs the command."""
        flags = self.parser(name).parse_args(arguments)
        importlib.import_module(self.module).main(flags)


CORE = {
    'train': Command('nplm_jax.cli.train', 'train a model from a config and save it in a run folder'),
    'generate': Command('nplm_jax.cli.generate', 'generate text with trained models'),
    'score': Command('nplm_jax.cli.score', 'score a text word by word'),
    'next': Command('nplm_jax.cli.next_words', 'list the most likely next words under each model'),
    'mix': Command('nplm_jax.cli.mix', 'learn the weights of a mixture of trained models and print its perplexity'),
    'compare': Command('nplm_jax.cli.compare', 'compare runs in a table and a figure'),
    'pack': Command('nplm_jax.cli.pack', 'pack a run into a single file that every command accepts'),
    'import': Command('nplm_jax.cli.import_model', 'import an ARPA file from KenLM or SRILM as a run'),
    'prune': Command('nplm_jax.cli.prune', 'prune an ARPA file by entropy or by a word list'),
    'info': Command('nplm_jax.cli.info', 'show the details of a run'),
    'runs': Command('nplm_jax.cli.list_runs', 'list the runs in a folder'),
}


@functools.cache
def all_commands() -> Mapping[str, Command]:
    """Returns the commands by name, in the order of `nplm --help`.

    An app declares its commands as COMMANDS in the `__init__.py` of its package. This dictionary maps the name of each
    command to a pair: the name of its module in the package, and a one-line summary.
    """
    found = dict(CORE)
    for app, commands in declared('COMMANDS').items():
        found |= {key: Command(f'{app}.{module}', summary) for key, (module, summary) in commands.items()}
    return found


def declared(name: str) -> dict[str, Any]:
    """Maps the package of each app to the value of `name` in its `__init__.py`. Skips apps without a value."""
    folders = importlib.import_module(_APPS).__path__
    packages = [f'{_APPS}.{module.name}' for module in sorted(pkgutil.iter_modules(folders))]
    values = {package: getattr(importlib.import_module(package), name, None) for package in packages}
    return {package: value for package, value in values.items() if value}
