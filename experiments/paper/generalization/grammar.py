"""A grammar of sentences like the paper's "the cat is walking in the bedroom", and its exact entropy.

The grammar is regular. Each state between START and END has arcs. An arc has a probability and emits one of its words,
which are equally likely. There are no loops, and a sentence has at most one derivation.
"""

from __future__ import annotations

import collections
import functools
import math
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

START, END = 'start', 'end'


class Arc(NamedTuple):
    """A transition: its probability, the words of which it emits one, and its target state."""

    probability: float
    words: tuple[str, ...]
    next: str


Grammar = Mapping[str, tuple[Arc, ...]]

OPTIONAL = 0.5  # probability that a noun has an adjective, and that a verb has an adverb
SHARED = 0.2  # probability of a verb that all kinds of nouns share
NOUNS = (  # the kinds of nouns
    'cat dog horse rabbit goat hamster badger',
    'gull crow duck parrot pigeon robin owl',
    'pupil student teacher girl boy scholar professor',
    'car truck van tractor taxi scooter bicycle',
    'boat ship yacht canoe raft trawler tanker',
    'cook waiter chef baker butcher guest grocer',
    'singer drummer pianist violinist guitarist dancer conductor',
    'miner welder builder plumber painter carpenter mason',
)
VERBS = (  # of each kind
    'walking running sniffing hopping digging prowling grazing trotting',
    'flying singing nesting circling gliding pecking chirping soaring',
    'reading writing learning counting drawing spelling revising studying',
    'driving braking turning speeding reversing overtaking parking honking',
    'sailing sinking floating drifting anchoring rocking cruising docking',
    'baking frying roasting tasting serving chopping stirring boiling',
    'drumming dancing humming performing practising tuning conducting rehearsing',
    'hammering drilling sawing plastering welding lifting sanding measuring',
)
PLACES = (  # of each kind
    'bedroom room kitchen garden barn yard stable kennel',
    'tree nest forest hedge meadow marsh cage cliff',
    'school classroom library college nursery campus academy laboratory',
    'street garage tunnel highway crossroad lane bridge avenue',
    'harbour bay lake river canal sea port lagoon',
    'restaurant bakery cafe canteen tavern diner inn pub',
    'theatre concert opera stage studio ballroom auditorium festival',
    'mine quarry factory workshop warehouse foundry scaffold cellar',
)
ANY_VERB = 'sleeping waiting resting hiding standing dreaming arriving leaving'
ADVERBS = (
    'slowly quietly happily often always never still quickly loudly gently calmly badly rarely boldly sadly proudly '
    'again really surely perhaps merely nearly barely usually today now secretly openly lazily warily safely busily'
)
ADJECTIVES = (
    'small large old new dark bright red blue green grey white black brown yellow famous quiet strange lovely ugly '
    'clean dirty cold warm cheap modern ancient lonely crowded busy little tall short wide narrow heavy light fine'
)
PREPOSITIONS = 'in near behind outside beyond around'
DETERMINERS = {'singular': 'the a this that every', 'plural': 'the some these those many'}
AUXILIARIES = {'singular': 'is was', 'plural': 'are were'}


def cats_and_dogs() -> Grammar:
    """Returns the grammar of sentences like "some small cats are slowly walking near the dark bedroom .".

    A sentence is: determiner (adjective) noun auxiliary (adverb) verb preposition determiner (adjective) place and a
    full stop. The noun agrees with the auxiliary, and the verb and the place belong to the noun's kind.
    """
    kinds = range(len(NOUNS))
    states = {START: [(1 / 2, DETERMINERS[number], f'noun {number}') for number in DETERMINERS]}
    for number, ending in (('singular', ''), ('plural', 's')):
        nouns = [' '.join(f'{noun}{ending}' for noun in words.split()) for words in NOUNS]
        arcs = [(1 / len(kinds), nouns[kind], f'be {number} {kind}') for kind in kinds]
        states |= _optional(ADJECTIVES, f'noun {number}', arcs)
        states |= {f'be {number} {kind}': [(1, AUXILIARIES[number], f'verb {kind}')] for kind in kinds}
    for kind in kinds:
        verbs = [(1 - SHARED, VERBS[kind], f'placing {kind}'), (SHARED, ANY_VERB, f'placing {kind}')]
        states |= _optional(ADVERBS, f'verb {kind}', verbs)
        states[f'placing {kind}'] = [(1, PREPOSITIONS, f'which {kind}')]
        states[f'which {kind}'] = [(1, DETERMINERS['singular'], f'place {kind}')]
        states |= _optional(ADJECTIVES, f'place {kind}', [(1, PLACES[kind], 'stop')])
    states['stop'] = [(1, '.', END)]
    return {
        state: tuple(Arc(p, tuple(words.split()), following) for p, words, following in arcs)
        for state, arcs in states.items()
    }


def _optional(words: str, state: str, arcs: list[tuple[float, str, str]]) -> dict[str, list[tuple[float, str, str]]]:
    """Returns a state with these arcs, optionally preceded by one of the optional words."""
    without = [((1 - OPTIONAL) * p, emitted, following) for p, emitted, following in arcs]
    return {state: [(OPTIONAL, words, f'{state} described'), *without], f'{state} described': arcs}


def vocabulary(grammar: Grammar) -> tuple[str, ...]:
    """Returns all words, sorted."""
    return tuple(sorted({word for arcs in grammar.values() for arc in arcs for word in arc.words}))


def entropy_and_length(grammar: Grammar) -> tuple[float, float]:
    """Returns the entropy of a sentence, in nats, and its expected number of words.

    A sentence has only one derivation, so the entropy of a sentence is the entropy of its derivation.
    """

    @functools.cache
    def remaining(state: str) -> tuple[float, float]:
        nats = length = 0.0
        for p, words, following in grammar.get(state, ()):
            nats += p * (math.log(len(words) / p) + remaining(following)[0])
            length += p * (1 + remaining(following)[1])
        return nats, length

    return remaining(START)


def floor(grammar: Grammar) -> float:
    """Returns exp(entropy of a sentence / its expected length), the lowest possible perplexity on infinite text."""
    nats, words = entropy_and_length(grammar)
    return math.exp(nats / words)


def text(grammar: Grammar, seed: int, num_words: int) -> list[str]:
    """Returns the first words of an infinite text of independent sentences. The text depends only on the seed."""
    rng, state = random.Random(seed), START
    words: list[str] = []
    while len(words) < num_words:
        arcs = grammar[START if state == END else state]
        _, emitted, state = rng.choices(arcs, [arc.probability for arc in arcs])[0]
        words.append(rng.choice(emitted))
    return words


def log_probabilities(grammar: Grammar, words: Iterable[str]) -> list[float]:
    """Returns log P of each word given all previous words under the grammar, in nats.

    Args:
        grammar: The grammar.
        words: A text whose first word begins a sentence.

    Raises:
        ValueError: The grammar does not allow one of the words at its position.
    """
    log_p, states = [], {START: 1.0}  # states: the probability of each state in which the sentence may be
    for word in words:
        after: dict[str, float] = collections.defaultdict(float)
        for state, p in states.items():
            for share, emitted, following in grammar[state]:
                if word in emitted:
                    after[START if following == END else following] += p * share / len(emitted)
        log_p.append(math.log(total := sum(after.values())))
        states = {state: p / total for state, p in after.items()}
    return log_p
