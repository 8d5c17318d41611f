"""Interprets the labels of a CTC model: characters, or subwords with `▁` at word beginnings or `##` in continuations.

The module follows pyctcdecode's rules for labels from NeMo and transformers.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable

from nplm_jax.utils.errors import require

BEGIN, INSIDE, UNK_TOKEN = '▁', '##', '⁇'
BLANK_TOKEN_PTN = re.compile(r'^[<\[]pad[>\]]$', re.IGNORECASE)  # names as in pyctcdecode; transformers imports them
UNK_TOKEN_PTN = re.compile(r'^[<\[]unk[>\]]$', re.IGNORECASE)
_SPECIAL = re.compile(r'[<\[].+[>\]]')


@dataclasses.dataclass(frozen=True)
class Label:
    """The effect of a label on a text.

    Attributes:
        text: The characters that the label appends.
        begins_word: Whether the label begins a new word.
        ends_word: Whether the label that follows begins a new word.
        is_blank: Whether the label is the CTC blank, which appends nothing.
    """

    text: str
    begins_word: bool = False
    ends_word: bool = False
    is_blank: bool = False


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """Normalized labels: the blank is '', the space is ' ', and `▁` marks subwords that begin a word.

    Attributes:
        labels: The labels, in the order of the columns.
        is_bpe: Whether the labels are subwords.
    """

    labels: list[str]
    is_bpe: bool

    @classmethod
    def build_alphabet(cls, labels: Iterable[str]) -> 'Alphabet':
        """Normalizes labels, and appends a blank if they do not include one.

        Args:
            labels: The labels. `<pad>` and `[PAD]` are blanks. If there is no other blank, `_` is the blank. If there
                is no other space, `|` is the space.

        Returns:
            The normalized labels.

        Raises:
            BadInput: The labels are not distinct strings, or a subword contains a space.
        """
        given = list(labels) if isinstance(labels, Iterable) and not isinstance(labels, str) else []
        are_strings = bool(given) and all(isinstance(label, str) for label in given)
        require(are_strings, 'labels', labels, 'must be a nonempty list of strings')
        is_bpe = any(label.startswith((BEGIN, INSIDE)) for label in given)
        marked = any(label.startswith(INSIDE) for label in given)
        read = [_to_begin_mark(label) if marked else label for label in given]
        unknown = BEGIN + UNK_TOKEN + BEGIN if is_bpe else UNK_TOKEN
        for pattern, meant in ((BLANK_TOKEN_PTN, ''), (UNK_TOKEN_PTN, unknown)):
            read = [meant if pattern.fullmatch(label) else label for label in read]
        if not is_bpe:
            for mark, meant in (('|', ' '), ('_', '')):
                read = [meant if label == mark and meant not in read else label for label in read]
        twice = sorted({label for label in read if read.count(label) > 1}) if len({*read}) < len(read) else []
        require(not twice, 'labels', twice, 'must be distinct')
        spaced = [label for label in read if is_bpe and ' ' in label]
        allowed = f'must not contain spaces, because other labels use the marker {BEGIN} or {INSIDE}'
        require(not spaced, 'labels', spaced, allowed)
        return cls(read if '' in read else [*read, ''], is_bpe)

    def parsed_labels(self) -> list[Label]:
        """Returns the effect of each label."""
        return [self._rule(label) for label in self.labels]

    def unspellable(self, words: Iterable[str]) -> list[str]:
        """Returns the words that the labels cannot spell."""
        rules = [rule for rule in self.parsed_labels() if rule.text]
        first, later = {rule.text for rule in rules}, {rule.text for rule in rules if not rule.begins_word}
        longest = max(map(len, first), default=0)

        def can_spell(word: str) -> bool:
            ends = {0}
            for end in range(1, len(word) + 1):
                starts = ends.intersection(range(end - longest, end))
                if any(word[start:end] in (later if start else first) for start in starts):
                    ends.add(end)
            return len(word) in ends

        return [word for word in words if not can_spell(word)]

    def check_spells(self, words: Collection[str], key: str) -> None:
        """Raises BadInput with the key `key` if there are words but the labels cannot spell any of them."""
        characters = {*''.join(self.labels)}
        can_spell = not words or any(characters.issuperset(word) for word in words)
        example = min(words, default='')
        allowed = f'cannot spell any word of the model, such as {example!r}; check upper and lower case'
        require(can_spell, key, self.labels, allowed)

    def _rule(self, label: str) -> Label:
        if not label:
            return Label('', is_blank=True)
        if not self.is_bpe:
            return Label('', begins_word=True) if label == ' ' else Label(label)
        if not label.startswith(BEGIN):
            return Label(label)
        text = label.removeprefix(BEGIN)
        return Label(text.removesuffix(BEGIN), begins_word=True, ends_word=text.endswith(BEGIN))


def _to_begin_mark(label: str) -> str:
    """Converts a label from the `##` convention, which marks continuations, to the `▁` convention."""
    if label.startswith(INSIDE):
        return label.removeprefix(INSIDE)
    is_special = _SPECIAL.fullmatch(label) or label in ('', BEGIN, BEGIN + UNK_TOKEN + BEGIN)
    return label if is_special else BEGIN + label
