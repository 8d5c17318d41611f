"""Draws tokens.svg from the results of experiments/beyond/tokens: `python docs/_figures/tokens.py`."""

import json
import math
import pathlib
import statistics

import bars

HERE = pathlib.Path(__file__).parent
RESULTS = HERE.parents[1] / 'experiments' / 'beyond' / 'tokens' / 'results'
SYSTEMS = {'words': '#4c72b0', 'bpe_8192': '#55a868', 'bpe_2048': '#dd8452', 'bytes': '#c44e52'}

if __name__ == '__main__':
    token, byte = {}, {}
    for name in SYSTEMS:
        runs = [json.loads(path.read_text()) for path in RESULTS.glob(f'one_minute-brown-{name}-*.json')]
        token[name] = statistics.mean(math.exp(-run['log_p'] / run['tokens']['test']) for run in runs), 500.0
        byte[name] = statistics.mean(run['bits_per_byte'] for run in runs), 2.5
    panels = {'perplexity per token (not comparable)': token, 'bits per byte (comparable)': byte}
    (HERE / 'tokens.svg').write_text(bars.draw(panels, SYSTEMS, '{:.3g}'))
