"""The labels of a CTC model: characters, or subwords of which `▁` or the absence of `##` marks the beginning of a word.

The rules are those of pyctcdecode, so that labels of NeMo and of transformers are read alike.
"""

import dataclasses
import re
from collections.abc import Iterable

from nplm_jax.utils.errors import require

BEGIN, INSIDE, UNK_TOKEN = '▁', '##', '⁇'
BLANK_TOKEN_PTN = re.compile(r'^[<\[]pad[>\]]$', re.IGNORECASE)  # names of pyctcdecode, which transformers imports
UNK_TOKEN_PTN = re.compile(r'^[<\[]unk[>\]]$', re.IGNORECASE)
_SPECIAL = re.compile(r'[<\[].+[>\]]')


@dataclasses.dataclass(frozen=True)
class Label:
    """What a label does to a text.

    Attributes:
        text: The characters that it appends.
        begins_word: Whether it ends the word before it.
        ends_word: Whether the label after it begins a word.
        is_blank: Whether it is CTC's blank, which appends nothing.
    """

    text: str
    begins_word: bool = False
    ends_word: bool = False
    is_blank: bool = False


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """Labels in one form: the blank is '', the space ' '; subwords have `▁` at the beginning of a word.

    Attributes:
        labels: The labels, in the order of the columns.
        is_bpe: Whether they are subwords.
    """

    labels: list[str]
    is_bpe: bool

    @classmethod
    def build_alphabet(cls, labels: Iterable[str]) -> 'Alphabet':
        """Brings labels into this form. A blank is appended where there is none.

        Args:
            labels: The labels. `<pad>` and `[PAD]` are blanks, and so is `_` if there is no other; `|` is a space if
                there is no other.

        Raises:
            BadInput: They are no strings, not different, or a space is one of several subwords.
        """
        given = list(labels) if isinstance(labels, Iterable) and not isinstance(labels, str) else []
        are_strings = bool(given) and all(isinstance(label, str) for label in given)
        require(are_strings, 'labels', labels, 'must be a list of strings')
        is_bpe = any(label.startswith((BEGIN, INSIDE)) for label in given)
        marked = any(label.startswith(INSIDE) for label in given)
        read = [_to_begin_mark(label) if marked else label for label in given]
        unknown = BEGIN + UNK_TOKEN + BEGIN if is_bpe else UNK_TOKEN
        read = [
            '' if BLANK_TOKEN_PTN.fullmatch(label) else unknown if UNK_TOKEN_PTN.fullmatch(label) else label
            for label in read
        ]
        if not is_bpe:
            for mark, meant in (('|', ' '), ('_', '')):
                read = [meant if label == mark and meant not in read else label for label in read]
        twice = sorted({label for label in read if read.count(label) > 1}) if len({*read}) < len(read) else []
        require(not twice, 'labels', twice, 'must be different')
        spaced = [label for label in read if is_bpe and ' ' in label]
        require(not spaced, 'labels', spaced, f'must be without spaces: other labels have the mark {BEGIN} or {INSIDE}')
        return cls(read if '' in read else [*read, ''], is_bpe)

    def parsed_labels(self) -> list[Label]:
        """Returns what each label does."""
        return [self._rule(label) for label in self.labels]

    def unspellable(self, words: Iterable[str]) -> list[str]:
        """Returns the words that no sequence of labels spells."""
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
    """Returns a label of an alphabet with `##` inside words in one with `▁` at their beginning."""
    if label.startswith(INSIDE):
        return label.removeprefix(INSIDE)
    is_special = _SPECIAL.fullmatch(label) or label in ('', BEGIN, BEGIN + UNK_TOKEN + BEGIN)
    return label if is_special else BEGIN + label
