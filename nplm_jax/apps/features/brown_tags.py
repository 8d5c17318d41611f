"""Derives parts of speech from the tags of the Brown corpus."""

import collections
import re

from nplm_jax.data import brown

_TAG_PREFIXES = {  # the pattern of tag prefixes for each part of speech
    'noun': 'nn|nr',
    'name': 'np',
    'verb': 'vb|be|do|hv|md',
    'adjective': 'jj',
    'adverb': 'rb|rn|rp|ql|wql|wrb',
    'pronoun': 'pp|pn|wp',
    'determiner': 'at|ap|ab|dt|wdt|ex',
    'preposition': 'in|to',
    'conjunction': 'cc|cs',
    'number': 'cd|od',
}


def parts_of_speech() -> dict[str, str]:
    """Returns the most frequent part of speech of each lowercased word of the Brown corpus.

    A possessive is counted as an occurrence of its noun. A foreign word has the part of speech that its tag indicates.
    """
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for token in ' '.join(brown.tagged_texts()).split():
        word, _, tag = token.lower().rpartition('/')
        part = next((p for p, prefix in _TAG_PREFIXES.items() if re.match(prefix, tag.removeprefix('fw-'))), 'other')
        counts[word.removesuffix("'s") or word][part] += 1
    return {word: parts.most_common(1)[0][0] for word, parts in counts.items()}
