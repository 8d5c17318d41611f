"""Assigns binary codes to words, and builds the binary tree that the codes define.

A word has one code for each of its leaves. Each bit of a code selects the branch at a node on the path to the leaf.

Dims: V words, R leaves per word and D nodes above a leaf (both maxima), S children of the nodes at one level.
"""

import dataclasses
import hashlib
import heapq
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_lines

BUILT_IN = ('huffman', 'random')  # sources of codes that require only the vocabulary

Codes = Sequence[Sequence[str]]  # for each word, the codes of its leaves, such as '0110'


@dataclasses.dataclass(frozen=True)
class Tree:
    """A binary tree whose leaves are words. Nodes and leaves are numbered breadth-first.

    Trees with equal digests compare equal, so that networks with equal trees share compiled programs.

    Attributes:
        digest: A checksum of the arrays of the tree.
        num_nodes: The number of internal nodes; the root is node 0.
        nodes_VxRxD: The nodes above each leaf of each word, from the root down, int32, padded with 0.
        signs_VxRxD: 1 if the path takes branch 1 of the node, -1 if it takes branch 0, int8, padded with 0.
        levels: For each depth below the root, S bools that tell whether each child of the nodes at the previous depth
            is a leaf.
        leaves_VxR: The breadth-first numbers of each word's leaves, padded with the number of leaves.
    """

    digest: str
    num_nodes: int
    nodes_VxRxD: np.ndarray = dataclasses.field(compare=False)
    signs_VxRxD: np.ndarray = dataclasses.field(compare=False)
    levels: tuple[np.ndarray, ...] = dataclasses.field(compare=False)
    leaves_VxR: np.ndarray = dataclasses.field(compare=False)


def codes_of(vocabulary: Vocabulary, source: str) -> Codes:
    """Returns the codes of all words of a vocabulary.

    Args:
        vocabulary: The words, with their counts.
        source: `huffman` for codes that are shorter for more frequent words, `random` for a balanced tree with the
            words in random order, or the path of a file. Each line of the file has the form `word<TAB>code` or
            `word<TAB>code code ...`.

    Raises:
        BadInput: The file is missing or malformed, omits a word, repeats a word, or contains a word that is not in the
            vocabulary.
    """
    if source == 'huffman':
        return [[code] for code in huffman(vocabulary.counts)]
    if source == 'random':
        order = np.random.default_rng(0).permutation(len(vocabulary))
        codes = balanced(len(vocabulary))
        return [[codes[i]] for i in order]
    return read(source, vocabulary)


def huffman(counts: Sequence[int]) -> list[str]:
    """Returns Huffman codes, which are the prefix codes with the fewest bits in total for words with these counts.

    Examples:
        >>> huffman([5, 2, 1, 1])
        ['1', '00', '010', '011']
    """
    heap: list[tuple[int, int, list[int]]] = [(count, i, [i]) for i, count in enumerate(counts)]
    heapq.heapify(heap)
    codes = [''] * len(counts)
    for number in range(len(counts), 2 * len(counts) - 1):
        (count_0, _, words_0), (count_1, _, words_1) = heapq.heappop(heap), heapq.heappop(heap)
        for bit, words in (('0', words_0), ('1', words_1)):
            for word in words:
                codes[word] = bit + codes[word]
        heapq.heappush(heap, (count_0 + count_1, number, words_0 + words_1))
    return codes


def balanced(size: int) -> list[str]:
    """Returns the codes of the leaves of a balanced tree, from left to right. Their lengths differ by at most one.

    Examples:
        >>> balanced(3)
        ['0', '10', '11']
    """
    if size == 1:
        return ['']
    return ['0' + c for c in balanced(size // 2)] + ['1' + c for c in balanced(size - size // 2)]


def read(path: str, vocabulary: Vocabulary) -> Codes:
    """Reads a file of codes. See `codes_of`."""
    file = expand('output.tree', path)
    require(file.is_file(), 'output.tree', path, 'must be huffman, random or the path of a code file')
    codes: dict[str, list[str]] = {}
    for number, line in read_lines(file):
        word, _, leaves = line.partition('\t')
        if not leaves.split() or set(leaves) - {*'01 \r\n'}:
            raise BadInput(
                f'{file}:{number}', 'must contain a word, a tab and codes (zeros and ones) separated by spaces'
            )
        if word in codes:
            raise BadInput(
                f'{file}:{number}', f'must not repeat the word {word!r}; put all codes of a word on one line'
            )
        codes[word] = leaves.split()
    for word in vocabulary.words:
        if word not in codes:
            raise BadInput(file, f'has no code for the vocabulary word {word!r}')
    if others := codes.keys() - vocabulary.ids.keys():
        raise BadInput(file, f'has a code for {min(others)!r}, which is not in the vocabulary')
    return [codes[word] for word in vocabulary.words]


def make_tree(codes: Codes) -> Tree:
    """Builds the tree that the given codes define.

    Raises:
        BadInput: A code is a prefix of another, or a node has only one branch.
    """
    leaves = sorted((len(code), code, word) for word, word_codes in enumerate(codes) for code in word_codes)
    prefixes = sorted({code[:i] for _, code, _ in leaves for i in range(len(code))}, key=lambda c: (len(c), c))
    numbers = {prefix: number for number, prefix in enumerate(prefixes)}
    all_codes = [code for _, code, _ in leaves]
    is_prefix_free = len(set(all_codes)) == len(all_codes) and not numbers.keys() & set(all_codes)
    is_tree = is_prefix_free and len(leaves) == len(prefixes) + 1
    require(is_tree, 'output.tree', f'{len(leaves)} codes', 'must form a tree with two branches at every node')
    R, D = max(len(word_codes) for word_codes in codes), leaves[-1][0]
    nodes_VxRxD = np.zeros((len(codes), R, D), np.int32)
    signs_VxRxD = np.zeros((len(codes), R, D), np.int8)
    for word, word_codes in enumerate(codes):
        for r, code in enumerate(word_codes):
            nodes_VxRxD[word, r, : len(code)] = [numbers[code[:i]] for i in range(len(code))]
            signs_VxRxD[word, r, : len(code)] = [1 if bit == '1' else -1 for bit in code]
    leaves_VxR = np.full((len(codes), R), len(leaves), np.int32)
    for number, (_, code, word) in enumerate(leaves):
        leaves_VxR[word, list(codes[word]).index(code)] = number
    levels, nodes = [], prefixes[:1]
    while nodes:
        children = [prefix + bit for prefix in nodes for bit in '01']
        levels.append(np.array([code not in numbers for code in children]))
        nodes = [code for code in children if code in numbers]
    digest = hashlib.sha256(nodes_VxRxD.tobytes() + signs_VxRxD.tobytes()).hexdigest()
    return Tree(digest, len(prefixes), nodes_VxRxD, signs_VxRxD, tuple(levels), leaves_VxR)
