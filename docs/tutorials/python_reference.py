"""Reads English prose without a download: the Python language reference, a part of every Python installation."""

import random
import re
from pydoc_data import topics


def paragraphs() -> list[str]:
    """Returns the distinct paragraphs of prose, each on one line, in a fixed random order. Omits code and grammar."""
    found = []
    for _, page in sorted(topics.topics.items()):
        for block in re.split(r'\n\s*\n', page):
            is_code = re.search(r'^\s*(>>>|\.\.\.)|::=', block, re.MULTILINE)
            if re.match(r'\s*(?!New in|Changed in)[A-Z"].*\.\s*$', block, re.DOTALL) and not is_code:
                found.append(' '.join(block.split()))
    unique = list(dict.fromkeys(found))
    random.Random(1).shuffle(unique)
    return unique


def sentences() -> list[str]:
    """Returns the sentences of at least three words, in lower case and without punctuation, like a recogniser."""
    parts = (part for paragraph in paragraphs() for part in re.split(r'(?<=[.;:?!])\s+', paragraph))
    spoken = (re.findall(r"[a-z]+(?:'[a-z]+)?", part.lower().replace('’', "'")) for part in parts)
    return [' '.join(words) for words in spoken if len(words) >= 3]
