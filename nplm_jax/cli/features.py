"""What a network trained on Brown learnt of words: neighbours of frequent words, maps, files for other tools.

    python -m nplm_jax.cli features --workdir=runs/brown-mlp9             # prints the neighbours
    python -m nplm_jax.cli features --workdir=runs/brown-mlp9 --maps      # draws pca.png and tsne.png here,
                                                                                  # with two features a word plane.png
    python -m nplm_jax.cli features --workdir=runs/brown-mlp9 --export=DIR

The words are not chosen: the five most frequent nouns, verbs, adjectives and adverbs, by Brown's own tags. Maps need
scikit-learn. --export writes features.txt and features.bin (word2vec) and projector/ (TensorBoard). Another corpus'
network has neighbours and files too: --words="love hate".
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from nplm_jax.cli import trained
from nplm_jax.data import brown
from nplm_jax.inference import embeddings
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.text import markdown_table

HERE = pathlib.Path(__file__).parents[2] / 'experiments' / 'features'
KINDS = ('noun', 'verb', 'adjective', 'adverb')
EACH = 5  # words of a kind
NEAREST = 8
MAPPED, NAMED = 1000, 250  # the most frequent words on the maps, and how many of them are written out


def main() -> None:
    """Reads the flags, prints and writes."""
    parser = trained.Parser(__doc__)
    parser.add_argument('--words', default='', help='whose neighbours to print, with blanks between')
    parser.add_argument('--maps', nargs='?', const=str(HERE), help='draw the maps, here or in this folder')
    parser.add_argument('--export', help='write the files into this folder')
    flags = parser.parse_args()
    require(len(flags.workdir) == 1, '--workdir', flags.workdir, 'give one')
    models = trained.load(flags.workdir)
    model, corpus = models.settings[0].model, models.settings[0].corpus.name
    has_none = f'a model of family {model.family} has no word features'
    require(model.is_network, '--workdir', flags.workdir[0], has_none)
    kinds = brown.parts_of_speech() if corpus == 'brown' else {}
    ids = models.vocabulary.ids
    words = flags.words.split() or frequent(models.vocabulary.words, kinds)
    require(bool(words), '--words', flags.words, f'give some: {corpus} has no tags to choose words by')
    if unknown := [w for w in words if w not in ids]:
        require(False, '--words', ' '.join(unknown), 'not in the vocabulary')
    features_VxM = np.asarray(models.models[0].params['C_VxM'])
    print(neighbours(models.vocabulary.words, features_VxM, [ids[w] for w in words]))
    if kinds:
        print('\n' + agreement(models.vocabulary.words, features_VxM, kinds))
    if flags.maps:
        draw(models, features_VxM, kinds, expand('--maps', flags.maps))
    if flags.export:
        export(models, features_VxM, kinds, expand('--export', flags.export))


def frequent(words: Sequence[str], kinds: dict[str, str]) -> list[str]:
    """The most frequent words of each of the KINDS."""
    return [w for kind in KINDS for w in [w for w in words if kinds.get(w) == kind][:EACH]]


def mapped(words: Sequence[str], kinds: dict[str, str]) -> list[int]:
    """The most frequent words that are tagged as words, without marks and punctuation; all where there are no tags."""
    return [i for i, w in enumerate(words) if kinds.get(w, 'other') != 'other' or not kinds][:MAPPED]


def agreement(words: Sequence[str], features_VxM: np.ndarray, kinds: dict[str, str]) -> str:
    """How often a frequent word and the nearest of the others are of one part of speech, and how often any two are."""
    ids = mapped(words, kinds)
    _, kinds_B = np.unique([kinds[words[i]] for i in ids], return_inverse=True)
    nearest_Bx1, _ = embeddings.neighbours(features_VxM[ids], range(len(ids)), 1)
    same = float((kinds_B == kinds_B[nearest_Bx1[:, 0]]).mean())
    counts = np.bincount(kinds_B)
    chance = float((counts * (counts - 1)).sum() / (len(ids) * (len(ids) - 1)))
    return (
        f'Of the {len(ids):,} most frequent words, {same:.0%} have the part of speech of the nearest of the others; '
        f'of two drawn by chance, {chance:.0%} would.'
    )


def neighbours(words: Sequence[str], features_VxM: np.ndarray, ids: list[int]) -> str:
    """A Markdown table: a word a row, its nearest with their cosines."""
    found = zip(ids, *embeddings.neighbours(features_VxM, ids, NEAREST))
    cells = [[words[i], ', '.join(f'{words[j]} {c:.2f}' for j, c in zip(near, cosines))] for i, near, cosines in found]
    return markdown_table(['word', 'nearest by cosine'], cells)


def draw(models: trained.Trained, features_VxM: np.ndarray, kinds: dict[str, str], folder: pathlib.Path) -> None:
    """The maps of the most frequent words; where they have two features each, these are the map."""
    words = models.vocabulary.words
    ids = mapped(words, kinds)
    maps = {'pca': ('pca', 'two principal components'), 'tsne': ('tsne', 't-SNE by cosine')}
    if features_VxM.shape[1] == 2:
        maps = {'plane': ('pca', 'as they are')}
    for file, (method, name) in maps.items():
        places_Vx2 = embeddings.project(features_VxM[ids], method)
        shown = [words[i] for i in ids]
        title = f'{len(ids):,} most frequent words, {features_VxM.shape[1]} features each: {name}'
        coloured = [kinds.get(w, 'word') for w in shown]
        embeddings.draw(places_Vx2, shown, coloured, folder / f'{file}.png', title, NAMED)


def export(models: trained.Trained, features_VxM: np.ndarray, kinds: dict[str, str], folder: pathlib.Path) -> None:
    """word2vec's two formats and the projector's."""
    for name, binary in {'features.txt': False, 'features.bin': True}.items():
        embeddings.write_word2vec(models.vocabulary, features_VxM, folder / name, binary)
    embeddings.write_projector(models.vocabulary, features_VxM, folder / 'projector', kinds)
