"""Draws tokens.svg from the table of experiments/beyond/tokens/README.md: `python docs/_figures/tokens.py`."""

import math
import pathlib
import re

import bars

HERE = pathlib.Path(__file__).parent
SYSTEMS = {'words': '#4c72b0', 'bpe_8192': '#55a868', 'bpe_2048': '#dd8452', 'bytes': '#c44e52'}

if __name__ == '__main__':
    page = (HERE.parents[1] / 'experiments' / 'beyond' / 'tokens' / 'README.md').read_text()
    (table,) = re.findall(r'^\| Brown, one_minute .*\n.*\n((?:\|.*\n)+)', page, re.MULTILINE)
    rows = {row[0]: row for row in ([c.strip() for c in line.strip('|').split('|')] for line in table.splitlines())}
    token, byte = {}, {}
    for name in SYSTEMS:
        row = rows[name]
        tokens_per_word, bits_per_byte, per_word = float(row[2]), float(row[5]), float(row[7])
        token[name] = per_word ** (1 / tokens_per_word), 500.0
        byte[name] = bits_per_byte, 2.5
        print(name, f'{token[name][0]:.1f} a token, {math.log2(per_word) / bits_per_byte:.2f} bytes a word')
    panels = {'perplexity per token (not comparable)': token, 'bits per byte (comparable)': byte}
    (HERE / 'tokens.svg').write_text(bars.draw(panels, SYSTEMS, '{:.3g}'))
