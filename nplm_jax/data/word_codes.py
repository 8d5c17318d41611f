"""Binary codes of words, and the binary tree that they make: the way from the root to a word's leaf, a bit a node.

Dims: V words, R leaves of a word, D nodes above a leaf, both the largest; S nodes and leaves of a level.
"""

import dataclasses
import functools
import hashlib
import heapq
import itertools
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_lines

BUILT_IN = ('huffman', 'random')  # names of codes that are made from the vocabulary alone

Codes = Sequence[Sequence[str]]  # of each word the codes of its leaves, such as '0110'


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """The children of the nodes of one depth.

    Attributes:
        parents_S: The number of the node above each child.
        parent_positions_S: Its position among the children of the level above.
        signs_S: 1 for its branch 1, -1 for its branch 0.
        leaf_positions: The positions of the children that are leaves.
    """

    parents_S: np.ndarray
    parent_positions_S: np.ndarray
    signs_S: np.ndarray
    leaf_positions: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree whose leaves are words. Trees compare by their content, so that equal programs are equal.

    Attributes:
        num_nodes: Number of nodes that are no leaves; the root is node 0.
        nodes_VxRxD: The nodes above each leaf of each word from the root on, int32; 0 where there are fewer.
        signs_VxRxD: 1 where the way takes branch 1 of the node, -1 for branch 0, 0 where there is no node, int8.
        levels: The same tree by depth.
        leaves_VxR: The leaves of each word in the order of the levels; the number of leaves where there are fewer.
    """

    num_nodes: int
    nodes_VxRxD: np.ndarray
    signs_VxRxD: np.ndarray
    levels: tuple[Level, ...]
    leaves_VxR: np.ndarray

    @functools.cached_property
    def digest(self) -> str:
        """A checksum of the content."""
        return hashlib.sha256(self.nodes_VxRxD.tobytes() + self.signs_VxRxD.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def codes_of(vocabulary: Vocabulary, source: str) -> Codes:
    """Returns the codes of all words.

    Args:
        vocabulary: The words.
        source: `huffman` (frequent words have short codes), `random` (a balanced tree in random order), or a file with
            lines `word<TAB>code` or `word<TAB>code code ...`.

    Raises:
        BadInput: The file is missing, is not of that form, has other words, or a word twice.
    """
    if source == 'huffman':
        return [[code] for code in huffman(vocabulary.counts)]
    if source == 'random':
        order = np.random.default_rng(0).permutation(len(vocabulary))
        codes = balanced(len(vocabulary))
        return [[codes[i]] for i in order]
    return read(source, vocabulary)


def huffman(counts: Sequence[int]) -> list[str]:
    """Returns Huffman's codes: no other prefix code has fewer bits for this text. Ties go to the earlier words.

    Examples:
        >>> huffman([5, 2, 1, 1])
        ['1', '00', '010', '011']
    """
    heap: list[tuple[int, int, tuple[int, ...]]] = [(count, i, (i,)) for i, count in enumerate(counts)]
    heapq.heapify(heap)
    bits: list[list[str]] = [[] for _ in counts]
    for number in itertools.count(len(counts)):
        if len(heap) == 1:
            return [''.join(reversed(b)) for b in bits]
        (count_0, _, words_0), (count_1, _, words_1) = heapq.heappop(heap), heapq.heappop(heap)
        for words, bit in ((words_0, '0'), (words_1, '1')):
            for word in words:
                bits[word].append(bit)
        heapq.heappush(heap, (count_0 + count_1, number, words_0 + words_1))
    raise AssertionError


def balanced(size: int) -> list[str]:
    """Returns codes whose lengths differ by one at most, in order: each half of the words has the same first bit.

    Examples:
        >>> balanced(3)
        ['0', '10', '11']
    """
    if size == 1:
        return ['']
    return ['0' + c for c in balanced(size // 2)] + ['1' + c for c in balanced(size - size // 2)]


def read(path: str, vocabulary: Vocabulary) -> Codes:
    """Reads a file of codes. Raises BadInput: see `codes_of`."""
    file = expand('output.tree', path)
    require(file.is_file(), 'output.tree', path, 'must be huffman, random or a file of codes')
    codes: dict[str, list[str]] = {}
    first_lines: dict[str, int] = {}
    for number, line in read_lines(file):
        word, _, leaves = line.partition('\t')
        codes[word] = leaves.split()
        if not codes[word] or set(''.join(codes[word])) - {'0', '1'}:
            raise BadInput(f'{file}:{number}: must be a word, a tab, and codes of 0 and 1, separated by spaces')
        if (first := first_lines.setdefault(word, number)) != number:
            raise BadInput(f'{file}:{number}: {word!r} has codes in line {first} already; give all of them in one line')
    for word in vocabulary.words:
        if word not in codes:
            raise BadInput(f'{file}: has no code for {word!r}, which is in the vocabulary')
    return [codes[word] for word in vocabulary.words]


def make_tree(codes: Codes) -> Tree:
    """Returns the tree of some codes.

    Raises:
        BadInput: A code is the start of another, or a node has one branch only.
    """
    leaves = sorted((len(code), code, word) for word, word_codes in enumerate(codes) for code in word_codes)
    prefixes = sorted({code[:i] for _, code, _ in leaves for i in range(len(code))}, key=lambda c: (len(c), c))
    numbers = {prefix: number for number, prefix in enumerate(prefixes)}
    all_codes = [code for _, code, _ in leaves]
    is_prefix_free = len(set(all_codes)) == len(all_codes) and not numbers.keys() & set(all_codes)
    is_tree = is_prefix_free and len(leaves) == len(prefixes) + 1
    require(is_tree, 'output.tree', f'{len(leaves)} codes', 'must be a tree with two branches at every node')
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
    return Tree(len(prefixes), nodes_VxRxD, signs_VxRxD, _levels(numbers, all_codes), leaves_VxR)


def _levels(numbers: dict[str, int], leaf_codes: Sequence[str]) -> tuple[Level, ...]:
    """Returns the levels: the children of each depth in the order of their codes, leaves and others alike."""
    inner, leaf = ({n: list(c) for n, c in itertools.groupby(codes, len)} for codes in (numbers, leaf_codes))
    levels, positions = [], {'': 0}
    for depth in range(1, max(leaf) + 1):
        children = sorted((*inner.get(depth, []), *leaf.get(depth, [])))
        is_leaf = set(leaf.get(depth, []))
        levels.append(
            Level(
                parents_S=np.array([numbers[code[:-1]] for code in children], np.int32),
                parent_positions_S=np.array([positions[code[:-1]] for code in children], np.int32),
                signs_S=np.array([1 if code[-1] == '1' else -1 for code in children], np.int8),
                leaf_positions=np.array([i for i, code in enumerate(children) if code in is_leaf], np.int32),
            )
        )
        positions = {code: i for i, code in enumerate(children)}
    return tuple(levels)
