"""Measures losses from samples on Brown's MLP9: seconds and updates to a validation perplexity, effective sample sizes.

    python -m experiments.paper.section5.importance [SECTION ...]
    python -m experiments.paper.section5.importance --show    prints the tables

For each loss: one pass over a quarter of the words with each of RATES (`search`), EPOCHS passes over all words with the
best one (`runs`), the time of an update (`timing`), and of its parts (`parts`). What the results have already is not
measured again; SECTIONs measure only those.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import brown
from experiments import results, study
from experiments.paper.section5.importance_table import FILE, tables
from experiments.paper.section5.plugins import bigram_proposal, importance
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import batches, dataset
from nplm_jax.data.batches import make_batch
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.distributed.sharding import ONE_DEVICE
from nplm_jax.models.body import by_example
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs import sampled
from nplm_jax.reporting.provenance import provenance
from nplm_jax.runs.loading import load_dataset
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import sparse_rows, step
from nplm_jax.training.deferred_decay import add_rows
from nplm_jax.training.gradients import gradients, sparse_view
from nplm_jax.training.step import TrainState
from nplm_jax.training.training_run import Chunk, TrainingRun
from nplm_jax.utils.names import require_one_of
from nplm_jax.utils.untrusted import read_json

RATES = (2.0, 3.5, 6.0, 10.0)
EPOCHS = 3
VALIDATIONS = (1.0, 2.0, 2.5, 3.0)  # epochs
SEARCH = {'corpus.train': 200_000.0, 'corpus.valid': 40_000.0}  # the words of the search
PROBE = 512  # training contexts over which effective sample sizes and divergences are averaged
DRAWS = 100  # words that each of them draws from each proposal
_KIND = 'experiments.paper.section5.plugins.importance:ImportanceSampling'
_CONTEXT = {'output.kind': _KIND, 'output.adaptation': 0.0}
LOSSES: dict[str, dict[str, Any]] = {
    'sampled': {'output.kind': 'sampled', 'output.samples': 1000},
    'nce': {'output.kind': 'nce', 'output.samples': 1000},
    'nce, 250': {'output.kind': 'nce', 'output.samples': 250},
    'bigram': {**_CONTEXT, 'output.samples': 16},
    'adaptive': {**_CONTEXT, 'output.samples': 16, 'output.adaptation': 4.0},
    'adaptive, ESS 50': {
        **_CONTEXT,
        'output.samples': 200,
        'output.adaptation': 4.0,
        'output.exact_target': False,
    },
    'adaptive, 8': {**_CONTEXT, 'output.samples': 8, 'output.adaptation': 4.0},
    'adaptive, 8 of 2003': {
        **_CONTEXT,
        'output.samples': 8,
        'output.adaptation': 4.0,
        'output.exact_target': False,
    },
}
MIN_ESS = {'adaptive, ESS 50': 50.0}  # the mean effective sample size that the number of samples is lowered to
NUM_SIZES = 4  # numbers of samples that are compiled for: the largest, and 1/2, 1/4 and 1/8 of it
ORDER = ['nce', 'adaptive', 'bigram', 'sampled', 'nce, 250', 'adaptive, ESS 50']  # of the runs
SECTIONS = ('timing', 'parts', 'search', 'few', 'runs')
FEW = ('adaptive, 8', 'adaptive, 8 of 2003')  # with the target's own term, and without: at the largest of RATES
SEARCHED = [name for name in LOSSES if name not in FEW]


def make_settings(name: str, rate: float, epochs: int, changes: dict[str, Any] | None = None) -> Settings:
    """Returns MLP9's settings with one of LOSSES."""
    settings = config_lib.from_config(brown.get_config('mlp9'))
    recipe = {'optimizer.learning_rate': rate, 'train.epochs': epochs}
    return config_lib.replace(settings, {**LOSSES[name], **recipe, **(changes or {})})


def next_chunk(run: TrainingRun, state: TrainState, made: int, min_ess: float) -> Chunk:
    """Returns the chunk after `made` updates, with the least of NUM_SIZES numbers of samples that has a mean ESS.

    Args:
        run: The run.
        state: Its state.
        made: The number of updates.
        min_ess: The mean effective sample size; 0: the largest number of samples.
    """
    chunk = run.chunk(state, made)
    if not min_ess:
        return chunk
    network = chunk.program.network
    largest, needed = network.output.samples, min_ess / max(float(state.output_state.ess_per_sample), 1e-6)
    sizes = [-(-largest // 2**k) for k in range(NUM_SIZES)]
    size = min((size for size in sizes if size >= needed), default=largest)
    output = dataclasses.replace(network.output, samples=size)
    program = dataclasses.replace(chunk.program, network=dataclasses.replace(network, output=output))
    return chunk._replace(program=program)


def train(name: str, settings: Settings, data: dataset.Dataset, stops: list[int], look: Callable[..., Any]) -> Any:
    """Trains, and looks at the state after some updates.

    Args:
        name: One of LOSSES.
        settings: The run's settings.
        data: Brown.
        stops: Numbers of updates.
        look: Returns what is recorded of a run and its state.

    Returns:
        A row for each stop: what `look` returned, updates, seconds inside updates, and samples (the mean number).
        Where a chunk's program was compiled, the median time of its other chunks counts.
    """
    run = prepare_run(settings, data)
    state, made, chunks, rows = run.init_state(), 0, [], []
    seconds: dict[tuple[int, int], list[float]] = {}  # by number of samples and updates; the first compiles
    while made < stops[-1]:
        chunk = next_chunk(run, state, made, MIN_ESS.get(name, 0))
        kind = chunk.program.network.output.samples, chunk.num_steps
        started = time.perf_counter()
        state, nll_S = step.execute_steps(*chunk)
        finite = bool(np.isfinite(np.asarray(nll_S)).all())
        seconds.setdefault(kind, []).append(time.perf_counter() - started)
        chunks.append((kind, len(seconds[kind]) - 1))
        before, made = made, made + chunk.num_steps
        if any(before < stop <= made for stop in stops) or not finite:
            times = [seconds[k][i] if i else statistics.median(seconds[k][1:] or seconds[k]) for k, i in chunks]
            num_samples = float(np.mean([k[0] for k, _ in chunks[-20:]]))
            rows.append({'updates': made, 'seconds': sum(times), 'samples': num_samples, **look(run, state)})
            print(f'  {rows[-1]}', file=sys.stderr, flush=True)
        if not finite:
            break
    return rows


def validate(run: TrainingRun, state: TrainState) -> float:
    """Returns the exact validation perplexity."""
    log_p = NeuralLanguageModel(run.program.network, state.params).score(run.data.tokens_T, run.data.valid)
    return float(np.exp(-np.mean(log_p, dtype=np.float64)))


@functools.partial(jax.jit, static_argnames=('network', 'num_shared'))
def sample_sizes(
    network: Any, params: Any, proposals: dict[str, Any], unigram: Any, batch: Any, num_shared: int
) -> dict[str, Any]:
    """Returns mean effective sample sizes of the network's distributions after some contexts, and KL(P || Q) in nats.

    `shared`: of `num_shared` distinct words of the unigram that all contexts share. Otherwise of DRAWS words that each
    context draws, by the name of the proposal; `unigram` draws them from the counts of all words.
    """
    contexts_BxN, _ = batch
    features = by_example(network.features(params, contexts_BxN).features)
    log_p_BxV = network.output.log_probabilities(params, features)
    V, key, mean_ess = log_p_BxV.shape[1], jax.random.key(0), lambda w: importance.effective_sample_size(w).mean()
    samples_S = sampled.draw(key, unigram, num_shared)
    measured = {'shared': mean_ess(jnp.exp(log_p_BxV[:, samples_S] - unigram.log_inclusion_prob_V[samples_S]))}
    words_BxV = jnp.broadcast_to(jnp.arange(V), log_p_BxV.shape)
    for name, proposal in proposals.items():
        previous_B = contexts_BxN[:, -1]
        words_BxL = bigram_proposal.draw(key, proposal, previous_B, DRAWS)
        log_q_BxV = bigram_proposal.look_up(proposal, previous_B, words_BxV).log_q_BxL
        measured[f'{name}, KL'] = jnp.sum(jnp.exp(log_p_BxV) * (log_p_BxV - log_q_BxV), axis=1).mean()
        log_w_BxV = log_p_BxV - log_q_BxV
        measured[name] = mean_ess(jnp.exp(jnp.take_along_axis(log_w_BxV, words_BxL, axis=1)))
    return measured


def probe(run: TrainingRun, state: TrainState) -> dict[str, Any]:
    """Returns the validation perplexity, and `sample_sizes` at contexts of training words."""
    network, data = run.program.network, run.data
    V, random = len(data.vocabulary), np.random.default_rng(0)
    positions = np.sort(random.choice(np.arange(data.train.start, data.train.stop), PROBE, replace=False))
    batch = batches.examples(data.tokens_T, jnp.asarray(positions, jnp.int32), network.body.lookback + 1)
    bigram = bigram_proposal.estimate(data.train_words, V)
    proposals = {'unigram': unigram_rows(bigram), 'bigram': bigram}
    if isinstance(network.output, importance.ImportanceSampling):
        proposals['adaptive'] = importance.adapted(bigram, state.output_state)
    log_q_V = unigram_log_probabilities(data.train_words, V)
    unigram = sampled.inclusion_distribution(log_q_V, 1000)
    sizes = sample_sizes(network, state.params, proposals, unigram, batch, 1000)
    return {'valid': validate(run, state), **{name: float(value) for name, value in sizes.items()}}


def unigram_rows(proposal: bigram_proposal.BigramProposal) -> bigram_proposal.BigramProposal:
    """Returns the proposal without its pairs of words: every context draws from the unigram."""
    V = len(proposal.first_R) - 2
    is_pair_G = (proposal.row_G < V) & (proposal.word_G < V)
    return bigram_proposal.add_counts(proposal, jnp.where(is_pair_G, -proposal.count_G, 0))


def search(name: str, data: dataset.Dataset, rates: tuple[float, ...] = RATES) -> list[dict[str, float]]:
    """Returns the validation perplexity after one pass over SEARCH's words with each rate."""
    rows = []
    for rate in rates:
        settings = make_settings(name, rate, 1, SEARCH)
        stops = [len(data.train) // settings.train.batch_size]
        looks = train(name, settings, data, stops, lambda run, state: {'valid': validate(run, state)})
        rows.append({'rate': rate, **looks[-1]})
    return rows


def best_rate(rows: list[dict[str, float]]) -> float:
    """Returns the rate of a search with the lowest validation perplexity."""
    return min(rows, key=lambda row: row['valid'])['rate']


def train_to_target(name: str, rate: float, data: dataset.Dataset) -> dict[str, Any]:
    """Returns the rows of EPOCHS passes."""
    settings = make_settings(name, rate, EPOCHS)
    per_epoch = len(data.train) // settings.train.batch_size
    return {
        'rate': rate,
        'rows': train(name, settings, data, [int(per_epoch * epochs) for epochs in VALIDATIONS], probe),
    }


def time_updates(data: dataset.Dataset, rounds: int = 8) -> dict[str, Any]:
    """Returns the milliseconds of an update of each loss: chunks of all losses in turn, the least and the median."""
    runs = {name: prepare_run(make_settings(name, 2.0, 1), data) for name in SEARCHED}
    states, milliseconds = {name: run.init_state() for name, run in runs.items()}, {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            chunk = next_chunk(run, states[name], int(states[name].step), MIN_ESS.get(name, 0))
            started = time.perf_counter()
            states[name], nll_S = step.execute_steps(*chunk)
            jax.block_until_ready(nll_S)
            milliseconds[name].append(1e3 * (time.perf_counter() - started) / chunk.num_steps)
    return {
        name: {
            'least': min(values[1:]),
            'median': statistics.median(values[1:]),
            'samples': chunk.program.network.output.samples,
        }
        for name, values in milliseconds.items()
    }


def time_parts(name: str, data: dataset.Dataset) -> dict[str, float]:
    """Returns the milliseconds of parts of an update, each compiled alone: the least of 30 calls."""
    run = prepare_run(make_settings(name, 2.0, 1), data)
    network, proposal, state = run.program.network, run.inputs.extras, run.init_state()
    words = run.words(0, 0, run.program.batch_size)
    positions_Bx1 = words.positions[: run.program.batch_size, None]
    batch = make_batch(words.tokens_L, positions_Bx1, network.body.lookback, extras=proposal)
    contexts = batch.ids_SxL
    key = jax.random.key(1)

    def least(function: Callable[..., Any], *arguments: Any) -> float:
        jax.block_until_ready(function(*arguments))
        times = []
        for _ in range(30):
            started = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            times.append(time.perf_counter() - started)
        return 1e3 * min(times)

    draw = jax.jit(lambda key: network.output.rows(batch, key))
    rows = draw(key)
    gather = jax.jit(lambda params: sparse_view(params, network, batch, rows, None, ONE_DEVICE))
    gradient = jax.jit(
        lambda state: gradients(
            state.params, network, batch, state.carry, key, ONE_DEVICE, output_state=state.output_state
        )
    )
    view = gradient(state).view

    def scatter_once(params: Any) -> Any:
        grads = sparse_rows.row_gradients(view, batch, params, network, ONE_DEVICE, sums_rows=False)
        return add_rows(params, *grads)

    scatter = jax.jit(lambda params: jax.lax.fori_loop(0, 10, lambda _, p: scatter_once(p), params))
    parts = {
        'draw': least(draw, key),
        'gather': least(gather, state.params),
        'draw, gather, loss and gradient': least(gradient, state),
        'scatter': least(scatter, state.params) / 10,
        'rows': float(rows.examples_BxL.size + rows.shared_S.size),
    }
    if state.output_state is not None and state.output_state.added_G is not None:
        added_G = state.output_state.added_G
        weights_BxL = jnp.ones(rows.examples_BxL.shape)
        count = jax.jit(
            lambda added_G: jax.lax.fori_loop(
                0,
                10,
                lambda _, a: bigram_proposal.expected_counts(
                    proposal, a, contexts[:, -1], rows.sample_info, weights_BxL
                ),
                added_G,
            )
        )
        parts['count'] = least(count, added_G) / 10
        parts['adapt, once in an execution'] = least(bigram_proposal.add_counts, proposal, added_G)
    return parts


def define(parser: study.StudyParser) -> None:
    """Adds the sections."""
    help = f'what to measure, of {", ".join(SECTIONS)}; default: all'
    parser.add_argument('sections', nargs='*', metavar='SECTION', help=help)


def main(flags: study.Flags) -> None:
    """Measures what the results lack, of these sections or of all, and writes them after every step."""
    for section in flags.sections:
        require_one_of('SECTION', section, SECTIONS)
    FILE.parent.mkdir(exist_ok=True)
    measured = read_json(FILE) if FILE.exists() else {}
    data = load_dataset(make_settings('nce', 2.0, 1))
    measured |= {'command': 'python -m experiments.paper.section5.importance', 'seed': 1, **provenance()}

    def keep(section: str, name: str, measure: Callable[[], Any]) -> None:
        if (flags.sections and section not in flags.sections) or name in measured.setdefault(section, {}):
            return
        print(f'{section}: {name}', file=sys.stderr, flush=True)
        started = time.perf_counter()
        measured[section][name] = measure()
        measured.setdefault('seconds', {})[f'{section}: {name}'] = time.perf_counter() - started
        results.write(FILE, measured)

    keep('timing', 'updates', lambda: time_updates(data))
    for name in ('nce', 'adaptive'):
        keep('parts', name, lambda name=name: time_parts(name, data))
    less = load_dataset(make_settings('nce', 2.0, 1, SEARCH))
    for name in SEARCHED:
        keep('search', name, lambda name=name: search(name, less))
    for name in FEW:
        keep('few', name, lambda name=name: search(name, less, RATES[-1:]))
    for name in sorted(SEARCHED, key=ORDER.index):
        keep('runs', name, lambda name=name: train_to_target(name, best_rate(measured['search'][name]), data))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=tables)
