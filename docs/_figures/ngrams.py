"""Draws ngrams.svg from the program in docs/explanation/ngrams.md: `python docs/_figures/ngrams.py`."""

import pathlib
import re

import bars

HERE = pathlib.Path(__file__).parent
WORDS = {'keys': '#4c72b0', 'glasses': '#55a868', 'francisco': '#c44e52'}
TITLES = {
    'mle': 'maximum likelihood',
    'add_one': 'add one',
    'frequency': 'discounting, frequency',
    'kneser_ney': 'discounting, Kneser-Ney',
}

if __name__ == '__main__':
    page = (HERE.parent / 'explanation' / 'ngrams.md').read_text()
    names = {}
    exec(re.findall(r'```python\n(.*?)```', page, re.DOTALL)[0], names)
    panels = {title: {w: (names[name](w, 'her'), 1.0) for w in WORDS} for name, title in TITLES.items()}
    (HERE / 'ngrams.svg').write_text(bars.draw(panels, WORDS, '{:.3f}'))
