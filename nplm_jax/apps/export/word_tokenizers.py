"""Converts word tokenizers to tokenizers of Hugging Face's package `tokenizers`."""

from collections.abc import Collection, Mapping
from typing import Any

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, RARE, SKIPPED
from nplm_jax.data.tokenizers.words import WORD, WordTokenizer

# Patterns for Oniguruma, whose \w lacks the two joiners used by Persian and Indic scripts.
_LETTER = '[\\w\\p{M}\u200c\u200d]'
_S = "['’][sS]"  # the possessive suffix
_FINAL_SIGMA = "(?<=[\\p{Lu}\\p{Ll}])Σ(?!\\p{Mn}*['’.]?[\\p{Lu}\\p{Ll}])"  # a Σ that `str.lower` converts to ς
_SUFFIX = '(?i:st|nd|rd|th|s)?'
_NUMBER = rf'[-+$£€]?\.?\d+(?:[-.,:/]\d+)*{_SUFFIX}%?'
_NUMBER_OF_WORDS = (  # lookbehind, number, lookahead
    rf"(?<!{_LETTER})(?<!{_LETTER}[-'’.,])",
    rf'\d+(?:[-.,]\d+)*{_SUFFIX}',
    rf"(?!{_LETTER})(?![-'’.,]{_LETTER})",
)


def special_tokens(known: Collection[str]) -> dict[str, str]:
    """Returns the special tokens of a tokenizer, by role.

    A text starts and ends with the paragraph mark, as a line does in all commands. If the vocabulary has no paragraph
    mark, a text starts with <rare>, which fills the context of the first word. The padding token is not in the
    vocabulary. Its id is V, one more than the largest token id.

    Args:
        known: The tokens of the vocabulary.
    """
    pad = '<pad>'
    while pad in known:
        pad = f'<{pad}>'
    roles = {'unk_token': RARE, 'pad_token': pad}
    marks = {'bos_token': PARAGRAPH_BOUNDARY, 'eos_token': PARAGRAPH_BOUNDARY}
    return roles | (marks if PARAGRAPH_BOUNDARY in known else {'bos_token': RARE})


def word_tokenizer(ours: WordTokenizer, ids: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Returns a tokenizer equivalent to `ours`. For the kind `whitespace`, texts must have spaces around punctuation.

    Like `ours`, the tokenizer drops boundary tokens inside a text. It keeps a `bos_token` at the beginning and an
    `eos_token` at the end, even without a space, because this is how users of transformers add them. It does not
    recognize proper nouns, so texts must already contain <proper> in their place.

    Args:
        ours: The tokenizer of the run.
        ids: The id of each token.
    """
    word, space = WORD.replace(r'[\w\p{M}]', _LETTER), r'\0 \t\n\r' if ours.is_verbatim else r'\s\x1c-\x1f'
    is_words, begin, end = ours.kind == 'words', f'(?<![^{space}])', f'(?![^{space}])'
    roles, marks = special_tokens(ids), '|'.join(SKIPPED)
    first, last = (f'\\A{roles["bos_token"]}', f'{roles["eos_token"]}\\z' if 'eos_token' in roles else '(?!)')
    skipped = f'(?!{first}|{last})(?:{marks})'
    without_marks = normalizers.Replace(tokenizers.Regex(skipped if is_words else f'{begin}{skipped}{end}'), ' ')
    steps: list[Any] = [] if ours.is_verbatim else [normalizers.NFC()]
    if ours.match_quotes:
        steps += [normalizers.Replace(old, new) for old, new in _quotes(ids, ours.kind).items()]
    if ours.numbers:
        before, number, after = _NUMBER_OF_WORDS if is_words else (begin, _NUMBER, end)
        if ours.split_possessive:
            word, after = f'<number>{_S}|{word}', f'(?:{after}|(?={_S}{after}))'
        steps.append(normalizers.Replace(tokenizers.Regex(before + number + after), '<number>'))
    if is_words:
        steps.append(without_marks)
    if ours.lowercase:  # `Lowercase` ignores that Σ becomes ς at the end of a word
        final = normalizers.Replace(tokenizers.Regex(_FINAL_SIGMA), 'ς')
        steps += [normalizers.Replace('İ', 'i'), final, normalizers.Lowercase()]
    if not is_words:
        steps.append(without_marks)
        ends = {first: f'{roles["bos_token"]} ', last: f' {roles.get("eos_token")}'}
        steps += [normalizers.Replace(tokenizers.Regex(pattern), mark) for pattern, mark in ends.items()]
    cuts = [pre_tokenizers.Split(tokenizers.Regex(word if is_words else f'[^{space}]+'), 'removed', invert=True)]
    if ours.split_possessive:
        cuts.append(pre_tokenizers.Split(tokenizers.Regex(f'(?<=.){_S}$'), 'isolated'))
    exported = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(ids), RARE))
    exported.normalizer = normalizers.Sequence(steps)
    exported.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    return exported


def _quotes(known: Collection[str], kind: str) -> dict[str, str]:
    """Returns replacements for apostrophes and quotation marks that do not occur in the vocabulary.

    For vocabularies with a single form of each mark, the replacements are equivalent to `words.match_quotes`.
    """
    characters = {c for word in known for c in word}
    has_brown = kind == 'whitespace' and '``' in known and '"' not in known
    double = {'“': '``', '”': "''"} if has_brown else {'“': '"', '”': '"'}
    forms = {'‘': "'", '’': "'", "'": '’', **double}
    return {old: new for old, new in forms.items() if old not in characters and set(new) <= characters}
