"""The neural probabilistic language model of Bengio et al. (2003), trained on the Brown Corpus, in one file.

Read this file from top to bottom. It requires JAX, NumPy and the corpus. See nplm_from_scratch.md for commands.

The notation is the paper's: the vocabulary has |V| words, the n-1 previous words predict a word, each word has m
features (its row of C), and the hidden layer has h units. The name of an array ends in its shape: V words in the
vocabulary, N = n-1 context words, M = m features, P = N * M, K = h hidden units, B words in a batch, T words of text.
"""

import argparse
import collections
import functools
import math
import os
import pathlib
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

Theta = dict[str, jax.Array]  # the free parameters, by the paper's letters
Logits = Callable[[Theta, jax.Array], jax.Array]  # (theta, contexts_BxN) -> y_BxV
Loss = Callable[[Theta, jax.Array, jax.Array], jax.Array]  # (theta, contexts_BxN, targets_B) -> NLL of each target
RARE, SECONDS = 0, 3.0  # the id of <rare>, which stands for all unknown words; the time between progress reports


# --- the words (section 4) -------------------------------------------------------------------------------------------
def read_brown(path: str = '') -> list[str]:
    """Returns the tagged texts ('The/at jury/nn') in a folder or brown.zip, by default from $NLTK_DATA."""
    folders = [*os.environ.get('NLTK_DATA', '').split(os.pathsep), '~/nltk_data', '/usr/share/nltk_data']
    places = [f'{folder}/corpora/{name}' for folder in folders if folder for name in ('brown.zip', 'brown')]
    found = [p for place in ([path] if path else places) if (p := pathlib.Path(place).expanduser()).exists()]
    if not found:
        sys.exit(f'{path or "NLTK_DATA"}: no corpus; run `python -m nltk.downloader -d DIR brown`, set NLTK_DATA=DIR')
    folder = found[0] if found[0].is_dir() else zipfile.Path(found[0], 'brown/')
    texts = {file.name: file for file in folder.iterdir() if re.fullmatch(r'c[a-r]\d\d', file.name)}
    return [texts[name].read_text(encoding='ascii') for name in sorted(texts)]


def to_words(text: str) -> list[str]:
    """Returns <text> and the words in lower case, without tags (dog's becomes dog 's), with <p> before paragraphs."""
    text = re.sub(r"(?<=\S)'s(?!\S)", " 's", re.sub(r'/[^/\s]*(?!\S)', '', text).lower())
    paragraphs = [words for paragraph in re.split(r'\n\s*\n', text) if (words := paragraph.split())]
    return ['<text>', *(word for words in paragraphs for word in ['<p>', *words])]


def build_vocabulary(words: list[str], min_count: int, max_vocabulary: int) -> list[str]:
    """Returns <rare> and the words that occur often enough, the most frequent first. The id of a word is its index."""
    marks, counts = {'<text>', '<p>'} & set(words), collections.Counter(words).most_common()
    kept = marks.union([w for w, c in counts if c >= min_count and w not in marks][: max_vocabulary - 1 - len(marks)])
    return ['<rare>', *(word for word, _ in counts if word in kept)]


def examples(ids_T: jax.Array, positions_B: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """Returns the n-1 words before each position in reading order, B x N, and the word at each position."""
    before_BxN = positions_B[:, None] - jnp.arange(n - 1, 0, -1)
    return jnp.where(before_BxN < 0, RARE, ids_T[before_BxN]), ids_T[positions_B]


# --- the network (section 2) -----------------------------------------------------------------------------------------
def init(key: jax.Array, frequencies_V: np.ndarray, n: int, m: int, h: int, direct: bool) -> Theta:
    """Returns the initial theta = (b, d, W, U, H, C). b contains the log-frequencies, so they need not be learned."""
    V, P = len(frequencies_V), (n - 1) * m
    shapes = {'C': (V, m), 'H': (h, P), 'U': (V, h)} | ({'W': (V, P)} if direct else {})
    bounds = {'C': 0.1, 'H': P**-0.5, 'U': max(h, 1) ** -0.5, 'W': P**-0.5}
    keys = jax.random.split(key, len(shapes))
    theta = {a: jax.random.uniform(k, shapes[a], minval=-bounds[a], maxval=bounds[a]) for a, k in zip(shapes, keys)}
    b_V = np.log((frequencies_V + 0.5) / (frequencies_V + 0.5).sum())  # 0.5 for words that are not in the training text
    return theta | {'b': jnp.asarray(b_V, jnp.float32), 'd': jnp.zeros(h)}


def logits(theta: Theta, contexts_BxN: jax.Array) -> jax.Array:
    """Returns y = b + W x + U tanh(d + H x) (equation 1), B x V. x begins with the most recent word's features."""
    x_BxP = theta['C'][contexts_BxN[:, ::-1]].reshape(len(contexts_BxN), -1)
    y_BxV = theta['b'] + jnp.tanh(theta['d'] + x_BxP @ theta['H'].T) @ theta['U'].T
    return y_BxV + x_BxP @ theta['W'].T if 'W' in theta else y_BxV


def nll(theta: Theta, contexts_BxN: jax.Array, targets_B: jax.Array, y: Logits = logits) -> jax.Array:
    """Returns -log P(target) of each example in nats, where P(w) = exp(y_w) / sum over all words of exp(y)."""
    y_BxV = y(theta, contexts_BxN)
    return jax.nn.logsumexp(y_BxV, axis=1) - jnp.take_along_axis(y_BxV, targets_B[:, None], axis=1)[:, 0]


def shown(name: str, items: Sequence) -> Iterator:
    """Yields the items, and prints the progress to stderr every few seconds."""
    start = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if (now := time.monotonic()) - last >= SECONDS:
            print(f'{name}: {done / len(items):4.0%}, {now - start:.0f} s', end='\r', file=sys.stderr, flush=True)
            last = now


# --- training (section 2.1) ------------------------------------------------------------------------------------------
def learning_rate(s: argparse.Namespace, step: int, num_steps: int) -> float:
    """Returns the rate of a step: a cosine from the peak to 0, or the paper's epsilon_0 / (1 + r t) after t words."""
    if s.paper:  # a rate for each word, and `update` takes the mean over the words of a batch
        return s.batch_size * 1e-3 / (1 + 1e-8 * step * s.batch_size)
    return s.rate * (1 + math.cos(math.pi * step / num_steps)) / 2


@functools.partial(jax.jit, static_argnames=('n', 'loss'))
def update(
    theta: Theta, ids_T: jax.Array, positions_B: jax.Array, rate: float, decay: float, n: int, loss: Loss = nll
) -> tuple[Theta, jax.Array]:
    """Makes a step of gradient descent on mean NLL + decay/2 |weights|^2. Returns theta and the NLL before the step."""
    contexts_BxN, targets_B = examples(ids_T, positions_B, n)
    mean, gradient = jax.value_and_grad(lambda theta: loss(theta, contexts_BxN, targets_B).mean())(theta)
    weights = {a: decay * value if value.ndim > 1 else 0.0 for a, value in theta.items()}  # the biases do not decay
    return {a: theta[a] - rate * (gradient[a] + weights[a]) for a in theta}, mean


def train(theta: Theta, ids_T: jax.Array, s: argparse.Namespace, loss: Loss = nll) -> Iterator[tuple[Theta, float]]:
    """Yields theta and the mean NLL after each pass over the training words. Each pass has its own random order."""
    rng, steps = np.random.default_rng(s.seed), s.train // s.batch_size
    for epoch in range(s.epochs):
        order, means = rng.permutation(s.train)[: steps * s.batch_size].reshape(steps, s.batch_size), []
        for step, positions_B in enumerate(shown(f'epoch {epoch + 1}', order), start=epoch * steps):
            rate = learning_rate(s, step, s.epochs * steps)
            theta, mean = update(theta, ids_T, positions_B, rate, 1e-4 if s.paper else s.decay, s.n, loss)
            means.append(float(mean))
        yield theta, float(np.mean(means))


# --- what it can do (section 4) --------------------------------------------------------------------------------------
def perplexity(theta: Theta, ids_T: jax.Array, span: range, n: int, loss: Loss = nll) -> float:
    """Returns exp of the mean NLL of the words of a span."""
    block_nll = jax.jit(lambda theta, ids_T, positions_B: loss(theta, *examples(ids_T, positions_B, n)))
    blocks = shown('perplexity', np.array_split(np.array(span), -(-len(span) // 256)))
    return math.exp(np.mean(np.concatenate([np.asarray(block_nll(theta, ids_T, b)) for b in blocks]), dtype=float))


def sample(theta: Theta, vocabulary: list[str], start: list[str], length: int, n: int, seed: int = 1) -> list[str]:
    """Returns `start` and the words that follow, each drawn from P(w | the n-1 words before it), except <rare>."""
    ids, next_y = [RARE] * (n - 1) + [vocabulary.index(word) for word in start], jax.jit(logits)
    for key in jax.random.split(jax.random.key(seed), length):
        y_V = next_y(theta, jnp.array([ids[-(n - 1) :]]))[0].at[RARE].set(-jnp.inf)
        ids.append(int(jax.random.categorical(key, y_V)))
    return [vocabulary[i] for i in ids[n - 1 :]]


def neighbours(theta: Theta, vocabulary: list[str], word: str, count: int = 5, among: int = 1000) -> list[str]:
    """Returns the words, among the most frequent ones, whose features have the largest cosine with those of a word."""
    C_VxM = np.asarray(theta['C']) / np.linalg.norm(theta['C'], axis=1, keepdims=True)
    cosines_V = C_VxM[:among] @ C_VxM[vocabulary.index(word)]
    return [vocabulary[i] for i in np.argsort(-cosines_V) if vocabulary[i] != word][:count]


def settings(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the flags of a command line. The defaults train the paper's MLP9 with a faster recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('--brown', default='', help='folder of Brown, or brown.zip; default: in $NLTK_DATA')
    defaults = {'n': 5, 'm': 30, 'h': 100, 'rate': 2.0, 'decay': 1e-5, 'epochs': 6, 'batch_size': 128, 'seed': 1}
    defaults |= {'min_count': 4, 'max_vocabulary': 16_383, 'train': 800_000, 'valid': 0, 'test': 0}
    for name, value in defaults.items():
        parser.add_argument(f'--{name}', type=type(value), default=value, help=f'default: {value or "train / 4"}')
    parser.add_argument('--direct', action='store_true', help='add direct connections W from features to output')
    parser.add_argument('--paper', action='store_true', help="use the paper's rate 1e-3 / (1 + 1e-8 t) and decay 1e-4")
    s = parser.parse_args(arguments)
    s.valid, s.test = s.valid or s.train // 4, s.test or s.train // 4
    return s


def prepare(s: argparse.Namespace) -> tuple[list[str], jax.Array, Theta]:
    """Returns the vocabulary, the ids of all words of Brown, and the initial theta."""
    words = [word for text in read_brown(s.brown) for word in to_words(text)]
    if not 0 < s.batch_size <= s.train < s.train + s.valid < len(words):
        sys.exit(f'--train={s.train} --valid={s.valid}: must be at least a batch, and leave some of {len(words)} words')
    vocabulary = build_vocabulary(words, s.min_count, s.max_vocabulary)
    id_of = {word: i for i, word in enumerate(vocabulary)}
    ids_T = jnp.array([id_of.get(word, RARE) for word in words], jnp.int32)
    frequencies_V = np.bincount(ids_T[: s.train], minlength=len(vocabulary))
    return vocabulary, ids_T, init(jax.random.key(s.seed), frequencies_V, s.n, s.m, s.h, s.direct)


def main() -> None:
    """Trains a network and prints its perplexities, some words and some neighbours."""
    s, start = settings(), time.monotonic()
    vocabulary, ids_T, theta = prepare(s)
    valid, test = (range(len(ids_T))[a : a + size] for a, size in ((s.train, s.valid), (s.train + s.valid, s.test)))
    print(f'{s.train:,} words to train on, {len(valid):,} to validate, {len(test):,} to test, of {len(ids_T):,}')
    print(f'|V| = {len(vocabulary):,}, {sum(a.size for a in theta.values()):,} parameters', flush=True)
    passes = train(theta, ids_T, s)
    for epoch, (theta, mean) in enumerate(passes, start=1):
        perplexities = f'train {math.exp(mean):.1f}, valid {perplexity(theta, ids_T, valid, s.n):.1f}'
        print(f'epoch {epoch}: {perplexities}, {(time.monotonic() - start) / 60:.1f} minutes', flush=True)
    print(f'test perplexity: {perplexity(theta, ids_T, test, s.n):.1f}')
    print('sample:', *sample(theta, vocabulary, ['<p>'], 30, s.n))
    for word in filter(vocabulary.__contains__, ('he', 'two', 'could', 'the')):
        print(f'neighbours of {word}:', *neighbours(theta, vocabulary, word))


if __name__ == '__main__':
    main()
