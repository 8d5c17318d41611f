"""The command nplm: nplm COMMAND ... [--flags]."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from nplm_jax.utils.errors import BadInput, NonFiniteError, did_you_mean
from nplm_jax.utils.shell import open_closed_streams


class Command(NamedTuple):
    """A command: its module in this subpackage, and a summary of it."""

    module: str
    summary: str


COMMANDS = {
    'train': Command('train', 'train a model of a config, in the folder of a run'),
    'sweep': Command('sweep', 'train a config with several values of its keys'),
    'generate': Command('generate', 'text from trained models'),
    'score': Command('score', 'how likely a text is, word by word; re-ranking of alternatives'),
    'decode': Command('decode', 'words of CTC emissions, by beam search with trained models'),
    'surprisal': Command('surprisal', 'surprisal, entropy and rank of the words of an experiment, as a table'),
    'next': Command('next_words', 'the most likely next words, by model'),
    'mix': Command('mix', 'the mixture of trained models: its learned weights and its perplexity'),
    'spell': Command('spell', 'the spelling of words outside the vocabulary, for score --open and generate --open'),
    'adapt': Command('adapt', 'models that adapt to the text: caches and dynamic evaluation'),
    'features': Command('features', 'the learned word features: neighbours, maps, files for other tools'),
    'explore': Command('explore', 'trained models in a browser'),
    'compare': Command('compare', 'runs side by side, with a figure'),
    'export': Command('export', 'a model as ARPA, word2vec, npz, safetensors, ONNX, or for Hugging Face transformers'),
    'pack': Command('pack', 'a run as one file, which every command takes'),
    'import': Command('import_model', "an ARPA file of KenLM or SRILM as a run's folder"),
    'info': Command('info', 'details of a run'),
    'runs': Command('list_runs', 'list of the runs in a folder'),
    'replay': Command('replay', 'repeat one update of a training run'),
}
USAGE = """usage: nplm COMMAND ... [--flags]

Trains models and uses them. RUN is the folder of a run that `nplm train` or `nplm import` made.
`nplm COMMAND --help` shows flags, defaults, examples and what the command prints.

"""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command that the first argument names.

    Exits with 2 after bad input and with 1 after numbers that are not finite, both in one line, and with 1 in silence
    when the reader of its output has closed.
    """
    open_closed_streams()
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ['--help']
    try:
        if name in ('-h', '--help'):
            print(USAGE + '\n'.join(f'  {key:11}{command.summary}' for key, command in COMMANDS.items()))
        elif name in COMMANDS:
            importlib.import_module(f'nplm_jax.cli.{COMMANDS[name].module}').main(arguments)
        else:
            raise BadInput(f'{name}: no such command; available: {", ".join(COMMANDS)}{did_you_mean(name, COMMANDS)}')
        sys.stdout.flush()
    except (BadInput, NonFiniteError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, BadInput) else 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == '__main__':
    main()
