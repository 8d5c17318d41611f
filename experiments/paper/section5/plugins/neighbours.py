"""Prior knowledge of similar words: lists of related words from WordNet or from parts of speech.

Dims: V vocabulary, L maximum number of neighbours per word.
"""

import collections
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper.section5.plugins import wordnet
from nplm_jax.config.sections import CorpusSettings
from nplm_jax.config.settings import Settings
from nplm_jax.data import brown, mapped_arrays
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, RARE_ID, TEXT_BOUNDARY
from nplm_jax.data.tokenizers.words import split_possessive
from nplm_jax.utils.errors import require

MAX_NEIGHBOURS = 16  # L


class Neighbours(NamedTuple):
    """The related words of each word. A word without related words is related to itself.

    Attributes:
        ids_VxL: Word ids, int32; the rest of a row repeats the word itself.
        weights_VxL: 1 / number of neighbours, then zeros, float32.
    """

    ids_VxL: np.ndarray
    weights_VxL: np.ndarray


def save(path: str | os.PathLike[str], neighbours: Neighbours) -> None:
    """Writes the lists to a file for `optimizer.options.neighbours`."""
    np.savez(path, **neighbours._asdict())


def load(path: str) -> Neighbours:
    """Reads a file written by `save`. Raises BadInput if it does not exist."""
    require(os.path.isfile(path), 'optimizer.options.neighbours', path, 'must be a file written by neighbours.save')
    with np.load(path, allow_pickle=False) as file:
        return Neighbours(**file)


def pad(lists: Sequence[Sequence[int]]) -> Neighbours:
    """Returns lists of word ids, one per word, as arrays."""
    ids_VxL = np.tile(np.arange(len(lists), dtype=np.int32)[:, None], (1, MAX_NEIGHBOURS))
    weights_VxL = np.zeros((len(lists), MAX_NEIGHBOURS), np.float32)
    for word, ids in enumerate(lists):
        ids_VxL[word, : len(ids)] = ids
        weights_VxL[word, : max(len(ids), 1)] = 1 / max(len(ids), 1)
    return Neighbours(ids_VxL, weights_VxL)


def from_wordnet(words: Sequence[str], counts_V: Sequence[int], net: wordnet.WordNet) -> Neighbours:
    """Returns, for each word, the words in the same synsets, and its hypernyms, hyponyms and similar adjectives.

    Inflected words have the synsets of their lemma. A word with more than L related words keeps those that are related
    through the most common senses. Among these, words with the same ending come first, followed by the most frequent
    words.

    Args:
        words: The words by id, in lower case. Words with a capital letter have no neighbours.
        counts_V: The training counts of the words.
        net: The relations in WordNet.
    """
    members: dict[wordnet.Synset, list[tuple[int, int]]] = collections.defaultdict(list)  # word, and rank of the sense
    synsets: list[dict[wordnet.Synset, int]] = []  # for each word, the rank of each synset
    for i, word in enumerate(words):
        ranks: dict[wordnet.Synset, int] = {}
        for lemma in wordnet.lemmas(net, word):
            for rank, synset in enumerate(net.senses[lemma]):
                ranks[synset] = min(rank, ranks.get(synset, rank))
        synsets.append(ranks)
        for synset, rank in ranks.items():
            members[synset].append((i, rank))
    endings = [_ending(word) for word in words]

    def related(word: int) -> list[int]:
        total_rank: dict[int, int] = {}
        for synset, rank in synsets[word].items():
            for linked in (synset, *net.links[synset]):
                for other, other_rank in members.get(linked, ()):
                    total_rank[other] = min(rank + other_rank, total_rank.get(other, rank + other_rank))
        total_rank.pop(word, None)

        def order(other: int) -> tuple[int, bool, int, int]:
            return total_rank[other], endings[other] != endings[word], -counts_V[other], other

        return sorted(total_rank, key=order)[:MAX_NEIGHBOURS]

    return pad([related(word) for word in range(len(words))])


def _ending(word: str) -> str:
    """Returns the possible inflectional suffix of a word."""
    return next((ending for ending in ('ing', 'ed', 'est', 'er', 's') if word.endswith(ending)), '')


def from_tags(ids_T: np.ndarray, tags_T: Iterable[str], vocabulary_size: int) -> Neighbours:
    """Returns, for each word, the L most frequent of the other words that have the same most frequent tag.

    Args:
        ids_T: The training words, int32. Words that do not occur and the rare-word symbol have no neighbours.
        tags_T: The tags of the training words.
        vocabulary_size: The size of the vocabulary, V.
    """
    counts: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for word, tag in zip(ids_T.tolist(), tags_T, strict=True):
        counts[word][tag] += 1
    counts.pop(RARE_ID, None)
    most_frequent = sorted(counts, key=lambda word: (-counts[word].total(), word))
    tags = {word: min(counts[word], key=lambda tag: (-counts[word][tag], tag)) for word in most_frequent}
    by_tag: dict[str, list[int]] = collections.defaultdict(list)
    for word in most_frequent:
        by_tag[tags[word]].append(word)
    lists: list[list[int]] = [[] for _ in range(vocabulary_size)]
    for word, tag in tags.items():
        lists[word] = [other for other in by_tag[tag][: MAX_NEIGHBOURS + 1] if other != word][:MAX_NEIGHBOURS]
    return pad(lists)


def of_wordnet(settings: Settings, data: Dataset) -> Neighbours:
    """Returns the synonyms, hypernyms and hyponyms of each word of a corpus."""
    counts_V = mapped_arrays.bincount(data.train_words, len(data.vocabulary)).tolist()
    return from_wordnet(data.vocabulary.words, counts_V, wordnet.load())


def brown_tags(settings: CorpusSettings) -> list[str]:
    """Returns Brown's tag for each word in the stream from `corpora.load`. A boundary token is its own tag.

    Tags are in lower case, without their marks of headlines, titles and foreign words. If a clitic is split from its
    word, each gets its part of the tag: nn and $ for dog's, pps and bez for it's.
    """
    stream = []
    for text in brown.tagged_texts():
        stream += [TEXT_BOUNDARY] * settings.tokenizer.boundary_tokens
        for block in filter(str.strip, re.split(r'\n\s*\n', text)):
            stream += [PARAGRAPH_BOUNDARY] * settings.tokenizer.boundary_tokens
            for token in block.split():
                word, _, tag = token.rpartition('/')
                tag = re.sub(r'^fw-|(?<=.)-(?:tl|hl|nc)\b', '', tag.lower())
                if not settings.tokenizer.split_possessive or len(split_possessive(word)) == 1:
                    stream.append(tag)
                else:
                    first, _, second = tag.partition('+')
                    stream += [first.removesuffix('$'), second or '$']
    return stream


def of_tags(settings: Settings, data: Dataset) -> Neighbours:
    """Returns the words with the same most frequent tag. Supports only Brown."""
    require(
        settings.corpus.name == 'brown', 'corpus.name', settings.corpus.name, 'must be brown, the only corpus with tags'
    )
    tags_T = brown_tags(settings.corpus)[data.train.start : data.train.stop]
    return from_tags(data.train_words, tags_T, len(data.vocabulary))
