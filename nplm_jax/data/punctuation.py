"""Apostrophes and quotation marks as a vocabulary writes them, and tokens as ordinary text again."""

from collections.abc import Collection, Sequence

from nplm_jax.data.tokenization import PARAGRAPH_BOUNDARY, TEXT_BOUNDARY

_STRAIGHT = str.maketrans('‘’“”', '\'\'""')
_CURLY = str.maketrans("'", '’')
_BROWN = str.maketrans({'“': '``', '”': "''"})  # as Brown and the Penn Treebank write quotation marks


def match_quotes(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Rewrites apostrophes and quotation marks, straight or curly, as the vocabulary has them.

    Only a word outside the vocabulary changes, and only into a word of the vocabulary.

    Args:
        words: Tokens.
        known: The words of the vocabulary.
    """

    def rewrite(word: str) -> str:
        forms = (word, *(word.translate(table) for table in (_STRAIGHT, _CURLY, _BROWN)))
        return next((form for form in forms if form in known), word)

    return [rewrite(word) for word in words]


def detokenize(words: Sequence[str]) -> str:
    """Joins tokens to ordinary text: no blanks before punctuation and 's, quotation marks at their words.

    Boundary tokens become line breaks. A straight quotation mark opens or closes by turns in each paragraph. Of the
    ; ? and ! that Brown has twice one stays.

    Args:
        words: Tokens.
    """
    paragraphs: list[list[str]] = [[]]
    for word in words:
        if word in (PARAGRAPH_BOUNDARY, TEXT_BOUNDARY):
            paragraphs.append([])
        else:
            paragraphs[-1].append(word)
    return '\n'.join(_join(paragraph) for paragraph in paragraphs if paragraph)


def _join(words: Sequence[str]) -> str:
    from nltk.tokenize.treebank import TreebankWordDetokenizer  # noqa: PLC0415 (a second to import)

    is_open, marked = False, []
    for before, word in zip(['', *words], words):
        if word == before and word in (';', '?', '!'):
            continue
        if word == '"':
            is_open = not is_open
            word = '``' if is_open else "''"
        marked.append(word)
    return TreebankWordDetokenizer().detokenize(marked)
