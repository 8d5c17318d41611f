"""Subword tokenizers: byte-pair encoding (Sennrich et al., 2016) and the unigram model (Kudo, 2018).

Training and encoding use the package `tokenizers`.
"""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from nplm_jax.config.component import at_least, internal, key
from nplm_jax.data.tokenizers.byte_level import ALPHABET, ByteTokenizer, to_alphabet
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.utils.errors import require

MIN_PIECES = 300  # enough for the 256 bytes, the special tokens and some pieces
_SEPARATOR = '\0'  # separates strings in the alphabet, which does not contain it
_MAX_STRINGS = 2**17  # number of frequent strings from which pieces are learned; bounds the trainer's memory
_MAX_REPEATS = 2**8  # repeats of a string per trainer input; an input needs about 20 times its size in memory
_BATCH = 2**12  # number of strings cut at once, which limits the memory for encodings
_DECIMALS = 4  # decimals of a learned score
_SPECIAL_SCORE = -1e9  # score of special tokens in the unigram model; so low that no text is cut into them
_MODELS = {'bpe': models.BPE, 'unigram': models.Unigram}
_TRAINERS = {'bpe': trainers.BpeTrainer, 'unigram': trainers.UnigramTrainer}


@dataclasses.dataclass(frozen=True)
class PieceTokenizer(ByteTokenizer):
    """A tokenizer that cuts a text into subwords. A space belongs to the subword after it.

    `rules` are written in the byte-level alphabet. For `bpe`, each rule is a merge, `left right`, and the order of the
    merges matters. For `unigram`, each rule is a subword with its log-probability, `piece score`, and the rules are
    sorted by decreasing probability.

    Attributes:
        pieces: The number of tokens, including special tokens and the 256 bytes.
        piece_model: The kind of subword model: bpe or unigram.
    """

    pattern: ClassVar[str] = (  # \p{M} are combining marks
        r"'(?:s|t|re|ve|m|ll|d)(?!\p{L})| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+"
        r'|\s*[\r\n]+|\s+(?!\S)|\s+'
    )

    kind: str = internal('pieces')
    pieces: Annotated[int, at_least(MIN_PIECES)] = key(
        8000, 'vocabulary size |V|, including special tokens and the 256 byte tokens'
    )
    piece_model: Literal['bpe', 'unigram'] = key(
        'bpe', 'subword model: bpe (byte-pair encoding) | unigram (the unigram model of SentencePiece)'
    )

    @property
    def units(self) -> Sequence[str]:
        """See `ByteTokenizer.units`."""
        if self.piece_model == 'bpe':
            return [rule.replace(' ', '') for rule in self.rules]
        return [piece for piece, _ in self._scores if len(piece) > 1]

    def learn(
        self, texts: Sequence[Callable[[], Iterable[TextChunk]]], parallel_map: Callable[..., Iterator[Any]]
    ) -> Self:
        """Learns the pieces from the training texts.

        Raises:
            BadInput: The texts have fewer distinct pieces than `corpus.pieces`.
        """
        if self.rules:
            return self
        counts: collections.Counter[str] = collections.Counter()
        for counted in parallel_map(self._count_strings, texts[0]()):
            counts.update(counted)
        num_special = len(self.tokens) - len(ALPHABET)
        options = {'vocab_size': self.pieces - num_special, 'initial_alphabet': list(ALPHABET), 'show_progress': False}
        learner = tokenizers.Tokenizer(_MODELS[self.piece_model]())
        learner.pre_tokenizer = pre_tokenizers.Split(_SEPARATOR, 'removed')
        learner.train_from_iterator(_repeat(counts), _TRAINERS[self.piece_model](**options))
        model = json.loads(learner.to_str())['model']
        model = model if self.piece_model == 'bpe' else _without_chance(model)
        learned = dataclasses.replace(self, rules=self.rules_of(model))
        allowed = f'must be at most {len(learned.tokens):,}, the number of distinct pieces in the training texts'
        require(len(learned.tokens) >= self.pieces, 'corpus.pieces', self.pieces, allowed)
        return learned

    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """See `Tokenizer.cut`."""
        cutter, tokens = self._cutter
        cut: list[list[str]] = []
        for first in range(0, len(strings), _BATCH):
            batch = list(map(to_alphabet, strings[first : first + _BATCH]))
            encodings = cutter.encode_batch_fast(batch, add_special_tokens=False)
            cut += ([tokens[i] for i in encoding.ids] for encoding in encodings)
        return cut

    def model(self, ids: Mapping[str, int]) -> models.Model:
        """See `ByteTokenizer.model`."""
        if self.piece_model == 'bpe':
            return models.BPE(dict(ids), [(left, right) for left, right in map(str.split, self.rules)])
        scores = dict(self._scores)
        return models.Unigram(
            [(token, scores.get(token, _SPECIAL_SCORE)) for token in sorted(ids, key=ids.__getitem__)]
        )

    def rules_of(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """See `ByteTokenizer.rules_of`."""
        if self.piece_model == 'bpe':
            merges = [(left, right) for left, right in model['merges']]
            parts = {part for merge in merges for part in merge}
            if not parts <= model['vocab'].keys() - {''} or len(set(merges)) < len(merges):
                raise ValueError('a merge is repeated or has a part that is not a token')
            return tuple(f'{left} {right}' for left, right in merges)
        if not all(isinstance(score, float | int) for _, score in model['vocab']):
            raise TypeError('a score is not a number')
        scores = [(piece, float(score)) for piece, score in model['vocab'] if score != _SPECIAL_SCORE]
        return tuple(f'{piece} {score!r}' for piece, score in sorted(scores, key=lambda item: (-item[1], item[0])))

    def ids_of(self, model: Mapping[str, Any]) -> dict[str, int]:
        """See `ByteTokenizer.ids_of`."""
        if self.piece_model == 'bpe':
            return super().ids_of(model)
        return {piece: i for i, (piece, _) in enumerate(model['vocab'])}

    @functools.cached_property
    def _scores(self) -> list[tuple[str, float]]:
        """The pieces of the unigram model and their log-probabilities."""
        return [(piece, float(score)) for piece, score in (rule.split(' ') for rule in self.rules)]

    @functools.cached_property
    def _cutter(self) -> tuple[tokenizers.Tokenizer, Sequence[str]]:
        """The tokenizer for strings in the byte-level alphabet, and its tokens in id order."""
        return tokenizers.Tokenizer(self.model({token: i for i, token in enumerate(self.tokens)})), self.tokens

    def _count_strings(self, chunk: TextChunk) -> collections.Counter[str]:
        return collections.Counter(self.split(self.normalize(chunk.text)))


def _without_chance(model: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the random differences between unigram models learned from the same text.

    The trainer sums floats in the order of a hash map. This order differs between processes and changes the last digits
    of the scores, so this function rounds the scores. The trainer also gives characters without a score the lowest
    score plus 0, 1, 2, ... times 1e-4, in a random order. This function gives all of them the lowest score.
    """
    lowest = min(score for _, score in model['vocab'])
    limit = lowest + 1e-4 * (len(ALPHABET) - 0.5)
    scores = [(piece, lowest if len(piece) == 1 and score < limit else score) for piece, score in model['vocab']]
    return {**model, 'vocab': [(piece, round(score, _DECIMALS)) for piece, score in scores]}


def _repeat(counts: collections.Counter[str]) -> Iterator[str]:
    """Yields each string as often as its count, in the byte-level alphabet, because the trainer accepts no counts."""
    for string, count in counts.most_common(_MAX_STRINGS):
        unit = to_alphabet(string) + _SEPARATOR
        for first in range(0, count, _MAX_REPEATS):
            yield unit * min(_MAX_REPEATS, count - first)
