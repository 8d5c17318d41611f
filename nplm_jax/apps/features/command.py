"""Prints the nearest neighbours of words, draws maps of word features, and exports the features of a network.

    nplm features runs/brown-mlp9 --words="house love"      # prints their neighbours
    nplm features runs/brown-mlp9 --maps                    # draws pca.png and tsne.png, or plane.png for two features
    nplm features runs/brown-mlp9 --export --output=DIR     # features.txt and features.bin (word2vec), projector/

For Brown, the default words are the five most frequent nouns, verbs, adjectives and adverbs. For other corpora and for
subwords, they are the twenty most frequent words. The default words and the maps
exclude special tokens such as <p>. If the tokens of the run are subwords, --words lists subwords: `house` means
` house` if there is no subword `house`, and `␣house` always means ` house`. Files are written to the current folder or
to --output=DIR; projector/ is for TensorBoard. Maps require scikit-learn.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from nplm_jax.apps.features import brown_tags, maps
from nplm_jax.cli.outputs import require_new, require_writable
from nplm_jax.cli.parser import Parser
from nplm_jax.data.stream import SPECIAL_TOKENS
from nplm_jax.data.tokenizers.words import reading
from nplm_jax.inference import embeddings
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

KINDS = ('noun', 'verb', 'adjective', 'adverb')
WORDS_PER_KIND = 5
NUM_NEIGHBOURS = 8
NUM_POINTS, NUM_LABELS = 1000, 250  # number of points on a map, and number of labelled points


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_model_flags(mixed=False)
    parser.add_argument(
        '--words', default='', help='words whose neighbours are printed, separated by spaces; default: frequent words'
    )
    parser.add_switch('--maps', 'draw two-dimensional maps of the features')
    parser.add_switch('--export', 'export the features in word2vec and TensorBoard formats')
    folder = 'folder to write the files to; default: the current folder'
    parser.add_argument('-o', '--output', default='', metavar='DIR', help=folder)
    parser.add_overwrite('export', 'maps')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the neighbours of words, exports the features and draws the maps."""
    folder = expand('--output', flags.output or '.')
    writes = flags.export or flags.maps
    require(writes or not flags.output, '--output', flags.output, 'requires --export or --maps')
    if writes:
        require_writable('--output', folder, is_folder=True)
    exported = ('features.txt', 'features.bin', 'projector') if flags.export else ()
    for name in (*exported, *(('pca.png', 'tsne.png', 'plane.png') if flags.maps else ())):
        require_new('--output', flags, folder / name)

    models = load_models(flags.runs)
    family, corpus, vocabulary = models.settings[0].model.name, models.settings[0].corpus.name, models.vocabulary
    networks = models.word_features()
    require(bool(networks), 'RUN', flags.runs[0], f'model.family={family} has no word features')
    [(_, features_VxM)] = networks
    tokenizer = reading(vocabulary.tokenizer, flags.tokens)
    kinds = brown_tags.parts_of_speech() if corpus == 'brown' and tokenizer.tokens is None else {}
    words = flags.words.split() if tokenizer.is_lossless else models.tokenize(flags.words, flags.tokens)
    words = words if flags.words else frequent_words(vocabulary.shown, kinds)
    known = [word for word in words if vocabulary.find(word) is not None]
    require(bool(known), '--words', flags.words, 'must contain at least one word in the vocabulary')
    if len(known) < len(words):
        print(f'these words are unknown: {" ".join(word for word in words if word not in known)}', file=sys.stderr)
    nearest = {word: embeddings.nearest_words(vocabulary, networks, word, NUM_NEIGHBOURS)[0][1] for word in known}
    if flags.json:
        entries = {word: [{'word': w, 'cosine': cosine} for w, cosine in near] for word, near in nearest.items()}
        print(to_json({'neighbours': [{'word': word, 'nearest': entry} for word, entry in entries.items()]}))
    else:
        rows = [[word, ', '.join(f'{w} {cosine:.2f}' for w, cosine in near)] for word, near in nearest.items()]
        print(markdown_table(['word', 'nearest by cosine'], rows))
        if kinds:
            print('\n' + describe_agreement(vocabulary.words, features_VxM, kinds))
    if flags.export:
        embeddings.write_word2vec(vocabulary, features_VxM, folder / 'features.txt', binary=False)
        embeddings.write_word2vec(vocabulary, features_VxM, folder / 'features.bin', binary=True)
        maps.write_projector(vocabulary, features_VxM, folder / 'projector', kinds)
    if flags.maps:  # drawn last, because this fails if scikit-learn is not installed
        folder.mkdir(exist_ok=True)
        draw_maps(vocabulary.shown, features_VxM, kinds, folder)


def frequent_words(words: Sequence[str], kinds: Mapping[str, str]) -> list[str]:
    """Returns the most frequent words of each part of speech in KINDS. Without tags, returns the most frequent words.

    Args:
        words: The words, most frequent first.
        kinds: The part of speech of each word. Empty if there are no tags.
    """
    if not kinds:
        return [words[i] for i in frequent_ids(words, kinds)[: len(KINDS) * WORDS_PER_KIND]]
    return [word for kind in KINDS for word in [w for w in words if kinds.get(w) == kind][:WORDS_PER_KIND]]


def frequent_ids(words: Sequence[str], kinds: Mapping[str, str]) -> list[int]:
    """Returns the ids of the most frequent words that have a tag. Without tags, all words are considered.

    Special tokens are excluded.
    """
    if kinds:
        return [i for i, word in enumerate(words) if kinds.get(word, 'other') != 'other'][:NUM_POINTS]
    return [i for i, word in enumerate(words) if word not in SPECIAL_TOKENS][:NUM_POINTS]


def describe_agreement(words: Sequence[str], features_VxM: np.ndarray, kinds: Mapping[str, str]) -> str:
    """Describes how often a frequent word and its nearest neighbour have the same part of speech, compared with chance.

    Args:
        words: The words, most frequent first.
        features_VxM: The word features.
        kinds: The part of speech of each word.
    """
    ids = frequent_ids(words, kinds)
    _, kinds_B = np.unique([kinds[words[i]] for i in ids], return_inverse=True)
    nearest_Bx1, _ = embeddings.neighbours(features_VxM[ids], range(len(ids)), 1)
    agreement = float((kinds_B == kinds_B[nearest_Bx1[:, 0]]).mean())
    counts = np.bincount(kinds_B)
    chance = float((counts * (counts - 1)).sum() / (len(ids) * (len(ids) - 1)))
    found = f'{agreement:.0%} have the same part of speech as their nearest neighbour among them'
    return f'Of the {len(ids):,} most frequent words, {found} (chance: {chance:.0%}).'


def draw_maps(words: Sequence[str], features_VxM: np.ndarray, kinds: Mapping[str, str], folder: pathlib.Path) -> None:
    """Draws maps of the most frequent words. Uses no projection if there are only one or two features per word."""
    ids = frequent_ids(words, kinds)
    shown = {'pca': ('pca', 'two principal components'), 'tsne': ('tsne', 't-SNE by cosine')}
    if features_VxM.shape[1] <= 2:
        shown = {'plane': ('pca', 'not projected')}
    for name, (method, caption) in shown.items():
        points_Bx2 = embeddings.project(features_VxM[ids], method)
        labels = [words[i] for i in ids]
        title = f'{len(ids):,} most frequent words, {features_VxM.shape[1]} features each: {caption}'
        colours = [kinds.get(word, 'word') for word in labels]
        maps.draw(points_Bx2, labels, colours, folder / f'{name}.png', title, NUM_LABELS)
