"""Tokenizers of words as tokenizers of Hugging Face's `tokenizers`."""

from collections.abc import Collection, Mapping
from typing import Any

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from nplm_jax.data.tokenizers.tokenizer import RARE
from nplm_jax.utils.errors import BadInput

PAD = '<pad>'  # its id is V, which no token has

# As in words.py, in the syntax of Oniguruma.
_WORD = r"<[a-z]+>|[\w\p{M}]+(?:[-'’.,][\w\p{M}]+)*|[^\w\s\x1c-\x1f]"
_S = "['’][sS]"  # of a possessive
_SUFFIX = '(?i:st|nd|rd|th|s)?'
_NUMBERS = {  # lookbehind, number, lookahead
    'whitespace': (r'(?<!\S)', rf'[-+$£€]?\.?\d+(?:[-.,:/]\d+)*{_SUFFIX}%?', r'(?!\S)'),
    'words': (
        r"(?<![\w\p{M}])(?<![\w\p{M}][-'’.,])",
        rf'\d+(?:[-.,]\d+)*{_SUFFIX}',
        r"(?![\w\p{M}])(?![-'’.,][\w\p{M}])",
    ),
}


def word_tokenizer(
    ids: Mapping[str, int], kind: str, lowercase: bool, split_possessive: bool, numbers: bool, match_quotes: bool
) -> Any:
    """Returns a tokenizer that cuts a text as `WordTokenizer` does.

    Args:
        ids: The id of each token of the vocabulary.
        kind: See `WordTokenizer`, as for the others.
        lowercase: Whether tokens are in lower case.
        split_possessive: Whether dog's becomes dog 's.
        numbers: Whether numeric forms become <number>.
        match_quotes: Whether quotation marks become those of the vocabulary.

    Raises:
        BadInput: The vocabulary has the word <pad>.
    """
    if PAD in ids:
        raise BadInput(f'--to=hf: the vocabulary has the word {PAD}, which is reserved for padding')
    word = _WORD
    steps: list[Any] = [normalizers.NFC()]
    if match_quotes:
        steps += [normalizers.Replace(old, new) for old, new in _quotes(ids, kind).items()]
    if numbers:
        before, number, after = _NUMBERS[kind]
        if split_possessive:
            word, after = f'<number>{_S}|{word}', f'(?:{after}|(?={_S}{after}))'
        steps.append(normalizers.Replace(tokenizers.Regex(before + number + after), '<number>'))
    if lowercase:
        steps.append(normalizers.Lowercase())
    cuts: list[Any] = [pre_tokenizers.WhitespaceSplit()]
    if kind == 'words':
        cuts = [pre_tokenizers.Split(tokenizers.Regex(word), 'removed', invert=True)]
    if split_possessive:
        cuts.append(pre_tokenizers.Split(tokenizers.Regex(f'(?<=.){_S}$'), 'isolated'))
    exported = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(ids), RARE))
    exported.normalizer = normalizers.Sequence(steps)
    exported.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    return exported


def _quotes(known: Collection[str], kind: str) -> dict[str, str]:
    """Returns replacements for apostrophes and quotation marks that no word of the vocabulary has.

    As `words.match_quotes`, for vocabularies that write them in one way.
    """
    characters = {c for word in known for c in word}
    has_brown = kind == 'whitespace' and '``' in known and '"' not in known
    double = {'“': '``', '”': "''"} if has_brown else {'“': '"', '”': '"'}
    forms = {'‘': "'", '’': "'", "'": '’', **double}
    return {old: new for old, new in forms.items() if old not in characters and set(new) <= characters}
