"""Commands for trained models: python -m nplm_jax.cli COMMAND --workdir=runs/NAME ..."""

import importlib
import sys

from nplm_jax.cli import trained

COMMANDS = {
    'generate': 'text from a trained model',
    'score': 'how likely a text is, word by word; re-ranking; the likeliest next words',
    'mix': 'the mixture of trained models and its perplexity',
    'features': 'the learned word features: neighbours, maps, files for other tools',
    'explore': 'trained models in a browser',
    'replay': 'one update of a training run, made again',
}


def main() -> None:
    """Runs the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else '--help'
    if name not in COMMANDS:
        lines = '\n'.join(f'  {command:10}{what}' for command, what in COMMANDS.items())
        text = f'usage: python -m nplm_jax.cli COMMAND [--help | flags]\n\n{lines}'
        if name in ('-h', '--help'):
            print(text)
            return
        print(f'{name}: no such command; there are {", ".join(COMMANDS)}', file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [f'nplm_jax.cli {name}']
    trained.run(importlib.import_module(f'nplm_jax.cli.{name}').main)


if __name__ == '__main__':
    main()
