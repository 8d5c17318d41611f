"""Compares `--minutes` with networks chosen by hand, by training time and test perplexity on seven texts.

    python -m experiments.beyond.frontier.minutes           trains the missing runs on an idle machine
    python -m experiments.beyond.frontier.minutes --until=17:30   stops at that time; repeat the command to resume
    python -m experiments.beyond.frontier.minutes --minutes=2 --texts=0.2M
    python -m experiments.beyond.frontier.minutes --show          prints the table of the committed results

The texts are 2,000, 4,000, 16,000, 30,000 and 0.2 million words of Brown, all of Brown, and 5.8 million words of
Brown, WikiText-2 and NLTK's selection of Project Gutenberg. Brown's texts are in random order. Each network chosen by
hand is the best of several. For 4,000 to 30,000 words, no network was chosen by hand. Instead, a network is trained
with attention if `--minutes` chooses one without, and vice versa. For 2,000 words, `--minutes` trains a 5-gram.
"""

from __future__ import annotations

import itertools
import pathlib
import random
from typing import NamedTuple

from configs import presets
from experiments import results, study
from experiments.runs import launch
from nplm_jax.data import brown, gutenberg, wikitext2
from nplm_jax.data.stream import RARE
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.untrusted import read_json

RESULTS = pathlib.Path(__file__).parent / 'results' / 'minutes'


class Text(NamedTuple):
    """A text.

    Attributes:
        words: The approximate number of words taken from Brown, or None for a text larger than Brown.
        train: The approximate number of training words.
        minutes: The training time.
    """

    words: int | None
    train: int
    minutes: tuple[int, ...]


TEXTS = {
    '2k': Text(2_000, 1_900, (1,)),
    '4k': Text(4_000, 3_700, (1,)),
    '16k': Text(16_000, 14_000, (1,)),
    '30k': Text(30_000, 24_000, (1,)),
    '0.2M': Text(200_000, 167_000, (2, 10)),
    '1M': Text(1_200_000, 969_000, (2, 10)),
    '6M': Text(None, 5_191_000, (2, 10)),
}
CASES = [(name, minutes) for name, text in TEXTS.items() for minutes in text.minutes]
MINUTES = sorted({minutes for _, minutes in CASES})
KINDS = '5-gram', 'minutes', 'family', 'hand'  # the model, or the method that chooses it
# Text -> the network that `--minutes` trains if its family is typed, instead of the family that it chooses.
FAMILIES = {'4k': 'attentive_mogrifier', '16k': 'attentive_mogrifier', '30k': 'mogrifier'}
# (text, minutes) -> a network chosen by hand: width, passes, and changes to the keys of `presets.network`.
BY_HAND: dict[tuple[str, int], tuple[int, int, presets.Preset]] = {
    ('2k', 1): (64, 200, {}),
    ('0.2M', 2): (200, 20, {}),
    ('0.2M', 10): (400, 30, {}),
    ('1M', 2): (200, 3, {}),
    ('1M', 10): (320, 8, {}),
    ('6M', 2): (128, 1, {}),
    ('6M', 10): (200, 3, {}),
}


def write_text(name: str, path: pathlib.Path) -> None:
    """Writes a text unless its file exists."""
    if path.exists():
        return
    parts = brown.texts()
    random.Random(0).shuffle(parts)
    if words := TEXTS[name].words:
        sizes = itertools.accumulate(len(text.split()) for text in parts)
        parts = [text for text, size in zip(parts, sizes) if size - len(text.split()) < words]
    else:
        pieces = itertools.chain.from_iterable(wikitext2.read(''))
        parts += [*(piece.text.replace(RARE, 'unk') for piece in pieces), *gutenberg.texts()]
        random.Random(0).shuffle(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, '\n\n'.join(parts))


def runs_of(name: str, minutes: int) -> dict[str, list[str]]:
    """Returns the command-line arguments (config and flags) of each run on a text, by the names in KINDS."""
    runs = {'5-gram': ['text:modified_kneser_ney_5'], 'minutes': ['text', f'--minutes={minutes}']}
    if family := FAMILIES.get(name):
        runs['family'] = [f'text:{family}', f'--minutes={minutes}']
    if found := BY_HAND.get((name, minutes)):
        width, passes, changes = found
        keys = {**presets.network(width, passes, TEXTS[name].train), 'train.epochs': passes, **changes}
        runs['hand'] = ['text', *(f'--config.{key}={value}' for key, value in keys.items())]
    return runs


def measure(flags: study.Flags) -> None:
    """Trains the missing runs and prints the table."""
    folder = expand('--runs', flags.runs)
    for minutes, name in itertools.product(map(int, flags.minutes), flags.texts):
        if (name, minutes) not in CASES:
            continue
        text = folder / 'texts' / f'{name}.txt'
        write_text(name, text)
        for kind, words in runs_of(name, minutes).items():
            path = _path(name, minutes, kind)
            if kind not in flags.by or path.exists():
                continue
            workdir = folder / path.stem
            command = [f'--config={words[0]}', *words[1:], f'--config.corpus.path={text}']
            found = launch(command, workdir, flags.until)
            results.write(path, {**found, 'config': read_json(workdir / 'config.json')})
    print(study.shown(show, flags))


def _path(name: str, minutes: int, kind: str) -> pathlib.Path:
    return RESULTS / (f'{name}-{kind}.json' if kind == '5-gram' else f'{name}-{minutes}-{kind}.json')


def show(_: study.Flags) -> str:
    """Returns the table."""
    table = []
    for name, minutes in CASES:
        for kind in runs_of(name, minutes):
            path = _path(name, minutes, kind)
            if not path.exists() or (kind == '5-gram' and minutes != TEXTS[name].minutes[0]):
                continue
            found = results.load(path)
            model, shown = found['config']['model'], 'modified Kneser-Ney 5-gram'
            if 'updates' in found:  # a network
                attention = ', attention' if model['family'] == 'attentive_mogrifier' else ''
                shown = f'{model["h"]} units, {found["epochs"]:.1f} passes{attention}'
            process = found.get('process_seconds')
            seconds = f'{found["seconds"] / 60:.2f}', f'{process / 60:.1f}' if process else '-'
            minutes_flag = f'`--minutes={minutes}`'
            typed = f'`text:{FAMILIES.get(name)}`, {minutes_flag}'
            chosen = {'5-gram': '-', 'minutes': minutes_flag, 'family': typed, 'hand': 'hand'}[kind]
            table.append([name, chosen, shown, *seconds, found['perplexity']['test']])
    header = ['text', 'chosen by', 'model', 'minutes of training', 'minutes of the process', 'test']
    return markdown_table(header, table)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--texts', TEXTS, 'texts to train on')
    parser.add_names('--by', KINDS, 'models to train, named after how they are chosen')
    parser.add_names('--minutes', map(str, MINUTES), 'training times [min]')
    parser.add_training('runs/minutes')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
