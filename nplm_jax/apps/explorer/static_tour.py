"""Writes the tour as a single HTML file, in which the browser computes the network without a server.

The file contains the page, the vocabulary and the network's arrays. The arrays are float16, so the
probabilities agree with those computed by the server to about three digits. `web/static.js` implements `Tour.show`.
"""

import base64
import dataclasses
import json
import re

import numpy as np

from nplm_jax.apps.explorer.parts import WEB
from nplm_jax.apps.explorer.tour import NUM_WORDS, Tour
from nplm_jax.data.stream import RARE_ID, SKIPPED
from nplm_jax.data.tokenizers.words import WordTokenizer, reading
from nplm_jax.utils.errors import require


def render(tour: Tour, kind: str = '') -> str:
    """Returns the page as HTML.

    Args:
        tour: A trained network, without an n-gram model.
        kind: How to tokenize text. See `words.reading`.

    Raises:
        BadInput: The run is in training, its tokens are not words, or there is an n-gram model.
    """
    training = tour.training()
    require(not tour.ngram, '--tour', tour.ngram and tour.ngram[0], 'must be a single network run if --output is used')
    require(training['finished'], 'RUN', str(tour.folder), 'must be finished before the tour is written to a file')
    tokenizer, network = reading(tour.models.vocabulary.tokenizer, kind), tour.snapshot.network
    are_words = isinstance(tokenizer, WordTokenizer)
    require(are_words, 'corpus.tokens', tokenizer.kind, 'must be words if the tour is written to a file')
    prefix_L, line_end = tour.models.encode_prompt([]), network.network.line_end
    model = {
        'words': list(tour.models.vocabulary.words),
        'shown': list(tour.models.vocabulary.shown),
        'rare': RARE_ID,
        'tokenizer': dataclasses.asdict(tokenizer),
        'skipped': SKIPPED,
        'prefix': [RARE_ID if i == line_end else int(i) for i in prefix_L],
        'reach': network.network.body.reach,
        'listed': NUM_WORDS,
        'step': tour.snapshot.step,
        'best_step': tour.snapshot.best_step,
        'arrays': {name: _encode(np.asarray(array)) for name, array in network.params.items()},
        'units': tour.units(),
        'training': training,
    }
    data = json.dumps(model, allow_nan=False).replace('<', '\\u003c')  # so that no tag in the data can end the script
    script = f'globalThis.model = {data};\n{_read("static.js")}\n{_read("tour.js")}'
    page = re.sub(
        r'<link rel="stylesheet" href="(\w+\.css)">', lambda m: f'<style>\n{_read(m[1])}</style>', _read('index.html')
    )
    return page.replace('<script src="tour.js" type="module"></script>', f'<script type="module">\n{script}</script>')


def _read(name: str) -> str:
    return (WEB / name).read_text(encoding='utf-8')


def _encode(x: np.ndarray) -> dict[str, object]:
    """Returns the shape of an array, and its values as little-endian float16 in base64."""
    return {'shape': x.shape, 'values': base64.b64encode(x.astype('<f2').tobytes()).decode()}
