"""The parts of the documentation that are made from the code: `python -m tests.docs_test` writes them into the pages.

Such a part of a page stands between `<!-- NAME: python -m tests.docs_test writes this -->` and `<!-- end -->`.
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
from deleted_apps import went_with_an_app
from helpers import SPARSE, small_settings

from nplm_jax import config
from nplm_jax.cli import launch, parser
from nplm_jax.cli.commands import all_commands
from nplm_jax.models.network import Network
from nplm_jax.parts import NETWORKS, PARTS, part_class
from nplm_jax.utils.errors import BadInput
from tests import nested_calls

OUTPUT_KINDS = tuple(PARTS['output.kind'].paths)
ROOT = pathlib.Path(__file__).parents[1]
PART = re.compile(r'(<!-- (\w+): python -m tests\.docs_test writes this -->\n\n).*?(\n\n<!-- end -->)', re.DOTALL)
ROOMS = tuple(
    'utils config parts data distributed outputs models inference training runs cli apps kenlm decoding lm_eval'.split()
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
            read = ', '.join(f'`{read_key}`' for read_key in config.READS[key][name] if read_key != key)
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
    for room in [room for room in ROOMS if not went_with_an_app(f'nplm_jax/{room}.py')]:
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


def calls_of_an_update() -> str:
    """Returns the calls that nest from launch.py to the depth of an update of the paper's network."""
    calls = [call.split(' ') for call in nested_calls.deepest()]
    return '\n'.join(f'{number}. `{name}` in `{file}`' for number, (file, name) in enumerate(calls, start=1))


def _outputs_of(body: str, tied: bool) -> dict[str, tuple[str, ...]]:
    """Returns the names of the output matrices by each output layer that a body can have."""
    found = {}
    for kind in OUTPUT_KINDS:
        changes = {'model.family': body, 'model.tied': tied, 'output.kind': kind, 'model.m': 6, 'model.h': 8}
        streams = {'model.direct': False, 'train.batch_size': 16, 'train.bptt_length': 4}
        with contextlib.suppress(BadInput):
            network = Network.make(small_settings({**SPARSE, **streams, **changes}), 18)
            jax.eval_shape(network.init, jax.random.key(0))
            found[kind] = tuple(network.body.widths)
    return found


def tests_of_modules() -> str:
    """Returns a table of the test file of each module that has none of its own name, '-' for one without tests."""
    imports_of_tests = {
        path.relative_to(ROOT).as_posix(): _imported(path) for path in sorted((ROOT / 'tests').rglob('*_test.py'))
    }
    rows = []
    for path in sorted((ROOT / 'nplm_jax').rglob('*.py')):
        module = path.relative_to(ROOT / 'nplm_jax').with_suffix('').as_posix()
        if path.name != '__init__.py' and f'tests/{module}_test.py' not in imports_of_tests:
            name = f'nplm_jax.{module.replace("/", ".")}'
            users = [test for test, imported in imports_of_tests.items() if name in imported]
            users.sort(key=lambda test: not test.startswith(f'tests/{module.partition("/")[0]}/'))  # its room first
            test = THROUGH_OTHERS.get(module, users[0] if users else '-')
            assert test == '-' or (ROOT / test).exists(), f'THROUGH_OTHERS: {test} does not exist'
            rows.append([f'`{module}.py`', f'`{test}`'])
    return table(['module', 'tests'], rows)


def _imported(path: pathlib.Path) -> set[str]:
    """Returns the names that a file imports: modules, and what it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f'{node.module}.{alias.name}' for alias in node.names)}
    return names


# The tests of modules that no test imports, or that others name better than their imports do.
THROUGH_OTHERS = {
    'cli/__main__': 'tests/cli/main_test.py',
    'data/tokenizers/hf': 'tests/apps/export/huggingface_test.py',
    'apps/decoding/decode': 'tests/apps/decoding/decoding_test.py',
    'apps/adaptive/command': 'tests/apps/adaptive/adapt_test.py',
    'apps/decoding/ctc_scores': 'tests/apps/decoding/ctcdecoder_test.py',
    'apps/decoding/ctc_search': 'tests/apps/decoding/ctcdecoder_test.py',
    'apps/decoding/ctcdecoder': 'tests/apps/decoding/ctcdecoder_test.py',
    'apps/decoding/decoder': 'tests/apps/decoding/decoding_test.py',
    'apps/decoding/labels': 'tests/apps/decoding/ctcdecoder_test.py',
    'apps/decoding/rescore': 'tests/apps/decoding/nbest_test.py',
    'apps/evaluation/harness': 'tests/apps/evaluation/lm_eval_test.py',
    'apps/explorer/command': 'tests/apps/explorer/explore_test.py',
    'apps/export/arrays': 'tests/apps/export/export_test.py',
    'apps/export/command': 'tests/apps/export/export_test.py',
    'apps/filter/command': 'tests/apps/filter/filter_test.py',
    'apps/pairs/command': 'tests/apps/pairs/pairs_test.py',
    'apps/reading_times/command': 'tests/apps/reading_times/reading_times_test.py',
    'apps/kenlm/model': 'tests/apps/kenlm/kenlm_test.py',
    'apps/kenlm/prune': 'tests/apps/kenlm/prune_test.py',
    'apps/new_words/command': 'tests/apps/new_words/spell_test.py',
    'apps/explorer/continuations': 'tests/apps/explorer/page_test.py',
    'apps/explorer/header': 'tests/apps/explorer/page_test.py',
    'apps/explorer/parts': 'tests/apps/explorer/page_test.py',
    'apps/explorer/weights': 'tests/apps/explorer/page_test.py',
    'cli/info': 'tests/cli/compare_test.py',
    'cli/launch': 'tests/cli/launch_test.py',
    'cli/list_runs': 'tests/cli/compare_test.py',
    'cli/pack': 'tests/runs/packed_test.py',
    'cli/scheduler': 'tests/distributed/remote_scoring_test.py',
    'apps/surprisal/command': 'tests/apps/surprisal/surprisal_command_test.py',
    'cli/search_flags': 'tests/runs/search_test.py',
    'runs/search_report': 'tests/runs/search_test.py',
    'cli/sweep': 'tests/cli/train_test.py',
    'apps/surprisal/token_table': 'tests/data/preparation_test.py',
    'data/tokenizers/pieces': 'tests/data/tokenizer_byte_level_test.py',
    'data/word_codes': 'tests/outputs/tree_test.py',
    'apps/export/modeling_nplm': 'tests/apps/export/huggingface_test.py',
    'models/body': 'tests/models/seams_test.py',
    'models/network': 'tests/models/seams_test.py',
    'models/neural': 'tests/models/language_model_test.py',
    'models/ngram/backoff': 'tests/models/ngram/protocol_test.py',
    'models/ngram/scratch': 'tests/models/ngram/sorting_test.py',
    'models/ngram/unsmoothed': 'tests/models/ngram/protocol_test.py',
    'models/stream_body': 'tests/models/recurrent_test.py',
    'outputs/output_layer': 'tests/models/seams_test.py',
    'runs/loading': 'tests/runs/experiment_test.py',
    'runs/session': 'tests/runs/experiment_test.py',
    'runs/signals': 'tests/training/loop_test.py',
    'utils/checked_fields': 'tests/config_test.py',
    'utils/errors': 'tests/fuzz/hostile_test.py',
    'utils/io': 'tests/fuzz/hostile_test.py',
    'utils/plugins': 'tests/plugins_test.py',
    'utils/zips': 'tests/runs/packed_test.py',
}


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
    'tests_of_modules': tests_of_modules,
    'calls_of_an_update': calls_of_an_update,
}
PAGES = ('CONTRIBUTING.md', 'docs/testing.md', *(f'docs/reference/{name}.md' for name in ('config', 'commands', 'api')))


def parts(page: str) -> dict[str, tuple[str, str]]:
    """Returns what stands in each such part of a page, and what the code says, by its name."""
    text = (ROOT / page).read_text()
    found = {match[2]: match[0].removeprefix(match[1]).removesuffix(match[3]) for match in PART.finditer(text)}
    return {name: (written, MAKERS[name]()) for name, written in found.items()}


def write(page: str) -> None:
    """Writes what the code says into the parts of a page."""
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(PART.sub(lambda match: f'{match[1]}{MAKERS[match[2]]()}{match[3]}', text))
