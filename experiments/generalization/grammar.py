"""A grammar of sentences like the paper's "the cat is walking in the bedroom", and its entropy, exactly.

It is regular: from START to END each state has arcs; one is taken, and says one of its words, all of them as likely.
It has no loop, and a sentence one derivation at most.
"""

import collections
import functools
import math
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

START, END = 'start', 'end'


class Arc(NamedTuple):
    """Taken with this probability, it says one of these words and leads to that state."""

    probability: float
    words: tuple[str, ...]
    next: str


Grammar = Mapping[str, tuple[Arc, ...]]

OPTIONAL = 0.5  # how often a noun has an adjective, and a verb an adverb
SHARED = 0.2  # how often the verb is one of those that every kind has
WHO = (  # the kinds of nouns
    'cat dog horse rabbit goat hamster badger',
    'gull crow duck parrot pigeon robin owl',
    'pupil student teacher girl boy scholar professor',
    'car truck van tractor taxi scooter bicycle',
    'boat ship yacht canoe raft trawler tanker',
    'cook waiter chef baker butcher guest grocer',
    'singer drummer pianist violinist guitarist dancer conductor',
    'miner welder builder plumber painter carpenter mason',
)
DOING = (  # what each kind does
    'walking running sniffing hopping digging prowling grazing trotting',
    'flying singing nesting circling gliding pecking chirping soaring',
    'reading writing learning counting drawing spelling revising studying',
    'driving braking turning speeding reversing overtaking parking honking',
    'sailing sinking floating drifting anchoring rocking cruising docking',
    'baking frying roasting tasting serving chopping stirring boiling',
    'drumming dancing humming performing practising tuning conducting rehearsing',
    'hammering drilling sawing plastering welding lifting sanding measuring',
)
WHERE = (  # and where
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
PLACING = 'in near behind outside beyond around'
DETERMINERS = {'singular': 'the a this that every', 'plural': 'the some these those many'}
AUXILIARIES = {'singular': 'is was', 'plural': 'are were'}


def cats_and_dogs() -> Grammar:
    """Determiner (adjective) noun auxiliary (adverb) verb preposition determiner (adjective) place, and a full stop.

    The noun agrees with the auxiliary; verb and place are of the noun's kind, whatever stands between them.
    """
    kinds = range(len(WHO))
    states = {START: [(1 / 2, DETERMINERS[number], f'noun {number}') for number in DETERMINERS]}
    for number, ending in (('singular', ''), ('plural', 's')):
        nouns = [' '.join(f'{noun}{ending}' for noun in who.split()) for who in WHO]
        said = [(1 / len(kinds), nouns[kind], f'be {number} {kind}') for kind in kinds]
        states |= _perhaps(ADJECTIVES, f'noun {number}', said)
        states |= {f'be {number} {kind}': [(1, AUXILIARIES[number], f'verb {kind}')] for kind in kinds}
    for kind in kinds:
        verbs = [(1 - SHARED, DOING[kind], f'placing {kind}'), (SHARED, ANY_VERB, f'placing {kind}')]
        states |= _perhaps(ADVERBS, f'verb {kind}', verbs)
        states[f'placing {kind}'] = [(1, PLACING, f'which {kind}')]
        states[f'which {kind}'] = [(1, DETERMINERS['singular'], f'place {kind}')]
        states |= _perhaps(ADJECTIVES, f'place {kind}', [(1, WHERE[kind], 'stop')])
    states['stop'] = [(1, '.', END)]
    return {state: tuple(Arc(p, tuple(said.split()), then) for p, said, then in arcs) for state, arcs in states.items()}


def _perhaps(words: str, state: str, arcs: list[tuple[float, str, str]]) -> dict[str, list[tuple[float, str, str]]]:
    """A state with these arcs, and the same after one of the optional words."""
    without = [((1 - OPTIONAL) * p, said, then) for p, said, then in arcs]
    return {state: [(OPTIONAL, words, f'{state} described'), *without], f'{state} described': arcs}


def vocabulary(grammar: Grammar) -> tuple[str, ...]:
    """All words, sorted."""
    return tuple(sorted({word for arcs in grammar.values() for arc in arcs for word in arc.words}))


def entropy_and_length(grammar: Grammar) -> tuple[float, float]:
    """Of a sentence, expected: its nats, which are those of its only derivation, and its words."""

    @functools.cache
    def after(state):
        nats = words = 0.0
        for p, said, then in grammar.get(state, ()):
            nats += p * (math.log(len(said) / p) + after(then)[0])
            words += p * (1 + after(then)[1])
        return nats, words

    return after(START)


def floor(grammar: Grammar) -> float:
    """The perplexity that no model can beat on endless text: exp(entropy of a sentence / its expected words)."""
    nats, words = entropy_and_length(grammar)
    return math.exp(nats / words)


def text(grammar: Grammar, seed: int, num_words: int) -> list[str]:
    """The first words of an endless text of independent sentences: a pure function of the seed."""
    chance, state, words = random.Random(seed), START, []
    while len(words) < num_words:
        arcs = grammar[START if state == END else state]
        _, said, state = chance.choices(arcs, [arc.probability for arc in arcs])[0]
        words.append(chance.choice(said))
    return words


def log_probabilities(grammar: Grammar, words: Iterable[str]) -> list[float]:
    """log P of each word after all before it under the grammar itself, nats; the first word opens a sentence.

    Raises: ValueError at a word that cannot stand there.
    """
    found, states = [], {START: 1.0}  # where the sentence may be, with what probability
    for word in words:
        after: collections.Counter[str] = collections.Counter()
        for state, p in states.items():
            for share, said, then in grammar[state]:
                if word in said:
                    after[START if then == END else then] += p * share / len(said)
        found.append(math.log(total := after.total()))
        states = {state: p / total for state, p in after.items()}
    return found
