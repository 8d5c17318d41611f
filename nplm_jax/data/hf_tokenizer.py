"""A vocabulary and the `corpus.*` choices as a tokenizer of Hugging Face's `tokenizers`."""

from typing import Any

from nplm_jax.config import CorpusSettings
from nplm_jax.data.tokenization import NUMBER, PARAGRAPH_BOUNDARY, RARE, RAW_TEXTS, TEXT_BOUNDARY
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput

PAD = '<pad>'  # its id is V, which no word has

# As in data/tokenization.py, in the syntax of Oniguruma.
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


def special_words(vocabulary: Vocabulary) -> dict[str, str]:
    """Returns the special words by their role in a tokenizer.

    A text begins after the paragraph mark, as a line does in every command, and where there is none after <rare>, which
    is what networks read before the first word. The end of a text is the next paragraph mark.
    """
    roles = {'unk_token': RARE, 'pad_token': PAD}
    has_marks = PARAGRAPH_BOUNDARY in vocabulary.ids
    marks = {'bos_token': PARAGRAPH_BOUNDARY, 'eos_token': PARAGRAPH_BOUNDARY} if has_marks else {'bos_token': RARE}
    return roles | marks


def make_tokenizer(vocabulary: Vocabulary, settings: CorpusSettings) -> Any:
    """Returns a tokenizer that cuts a text as `word_tokens.tokenize_prompt` does, with its quotation marks.

    For a corpus that was split at white space, such as Brown, that is `tokenize_prompt` with kind `whitespace`: the
    text has to have its punctuation split off.
    It cannot know proper nouns (corpus.proper_nouns): a text has to have <proper> in their place already.

    Args:
        vocabulary: The vocabulary; a word's id is that of the vocabulary.
        settings: The `corpus.*` choices of the model's run.

    Raises:
        BadInput: The package tokenizers is missing, or the vocabulary has the word <pad>.
    """
    try:
        import tokenizers  # noqa: PLC0415 (an extra)
        from tokenizers import normalizers, pre_tokenizers  # noqa: PLC0415
    except ImportError:
        raise BadInput('tokenizers: not installed: pip install "nplm-jax[export]", or pip install tokenizers') from None
    if PAD in vocabulary.ids:
        raise BadInput(f'--to=hf: the vocabulary has the word {PAD}, which is reserved for padding')
    kind = settings.tokens if settings.name in RAW_TEXTS else 'whitespace'
    word, steps = _WORD, [normalizers.NFC()]
    steps += [normalizers.Replace(old, new) for old, new in _quotes(vocabulary, kind).items()]
    if settings.numbers:
        before, number, after = _NUMBERS[kind]
        if settings.split_possessive:
            word, after = f'{NUMBER}{_S}|{word}', f'(?:{after}|(?={_S}{after}))'
        steps.append(normalizers.Replace(tokenizers.Regex(before + number + after), NUMBER))
    if settings.lowercase:
        steps.append(normalizers.Lowercase())
    cuts = [pre_tokenizers.WhitespaceSplit()]
    if kind == 'words':
        cuts = [pre_tokenizers.Split(tokenizers.Regex(word), 'removed', invert=True)]
    if settings.split_possessive:
        cuts.append(pre_tokenizers.Split(tokenizers.Regex(f'(?<=.){_S}$'), 'isolated'))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary.ids, RARE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    marks = [mark for mark in (RARE, TEXT_BOUNDARY, PARAGRAPH_BOUNDARY) if mark in vocabulary.ids]
    tokenizer.add_special_tokens([*marks, PAD])
    return tokenizer


def _quotes(vocabulary: Vocabulary, kind: str) -> dict[str, str]:
    """Returns replacements for apostrophes and quotation marks that no word of the vocabulary has.

    As `punctuation.match_quotes`, for vocabularies that write them in one way.
    """
    characters = {c for word in vocabulary.words for c in word}
    has_brown = kind == 'whitespace' and '``' in vocabulary.ids and '"' not in vocabulary.ids
    double = {'“': '``', '”': "''"} if has_brown else {'“': '"', '”': '"'}
    forms = {'‘': "'", '’': "'", "'": '’', **double}
    return {old: new for old, new in forms.items() if old not in characters and set(new) <= characters}
