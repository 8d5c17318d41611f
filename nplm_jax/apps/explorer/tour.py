"""Computes the data of the tour: the paper's network applied to a context, and an n-gram model for comparison.

Dims: N words in a context, M features, P = N * M, K hidden units, V vocabulary, L words in a prompt.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from nplm_jax.config.settings import Settings
from nplm_jax.data.batches import mark_lines
from nplm_jax.data.stream import RARE_ID
from nplm_jax.inference import generation
from nplm_jax.models import nplm
from nplm_jax.models.body import windows
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.network_reading import jit_float32
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.outputs.softmax import LINEAR, scorer_of
from nplm_jax.reporting import catalog
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import loading, workdir
from nplm_jax.runs.command_models import LoadedModels, load_models
from nplm_jax.utils.errors import BadInput, require

FAMILY = 'nplm'
MAX_TEXT = 500  # maximum length of a context (characters)
NUM_WORDS = 10  # number of listed words
MAX_POINTS = 400  # maximum number of points in a training curve
_SHOWN = {'C_VxM', 'H_KxP', 'd_K', 'U_VxK', 'W_VxP', 'b_V'}


class Snapshot(NamedTuple):
    """The network of one checkpoint.

    Attributes:
        network: The network with the parameters that had the best validation perplexity so far. Before the first
            validation, it has the initial parameters.
        step: The update number of the checkpoint. None for a packed model.
        best_step: The update number of the best validation. 0 before the first validation, and None for a packed model.
        units: For each sign and each hidden unit, the words whose scores increase most when the unit has this sign.
    """

    network: NeuralLanguageModel
    step: int | None
    best_step: int | None
    units: dict[str, list[list[str]]]

    @classmethod
    def read(cls, folder: pathlib.Path, models: LoadedModels, settings: Settings) -> Self:
        """Reads the newest checkpoint of a run. Raises BadInput or OSError if no checkpoint can be read."""
        network, progress = loading.load_network(folder, settings, models.vocabulary, before_validation=True)
        U_KxV = np.asarray(network.params['U_VxK']).T if 'U_VxK' in network.params else ()
        units = {
            sign: [models.show(generation.largest(factor * u_V, 6)) for u_V in U_KxV]
            for sign, factor in (('positive', 1), ('negative', -1))
        }
        step, best_step = (progress['step'], progress['best_step']) if progress else (None, None)
        return cls(network, step, best_step, units)


@dataclasses.dataclass
class Tour:
    """A network, optionally with an n-gram model for comparison.

    Attributes:
        models: The models of the runs.
        settings: The settings of the network's run.
        folder: The folder of the network's run.
        name: The name of the network's run.
        ngram: The name of the n-gram model and the model itself. None without an n-gram model.
        snapshot: The network at its newest checkpoint.
    """

    models: LoadedModels
    settings: Settings
    folder: pathlib.Path
    name: str
    ngram: tuple[str, LanguageModel] | None
    snapshot: Snapshot

    @classmethod
    def load(cls, folders: Sequence[str]) -> Self:
        """Loads the runs, which may still be in training.

        Raises:
            BadInput: The runs do not consist of one network of the paper's family and at most one n-gram model.
        """
        paths = [catalog.expand_run(folder) for folder in folders]
        families = [workdir.read_settings(path).model.name for path in paths]
        allowed = f'requires one run with model.family={FAMILY} and, optionally, one n-gram run'
        require(families.count(FAMILY) == 1 and len(families) <= 2, '--tour', ','.join(families), allowed)
        place = families.index(FAMILY)
        models = load_models(folders, finished=False)
        network = models.models[place]
        assert isinstance(network, NeuralLanguageModel)
        others = [pair for i, pair in enumerate(zip(models.names, models.models)) if i != place]
        is_ngram = not any(isinstance(model, NeuralLanguageModel) for _, model in others)
        require(is_ngram, '--tour', ','.join(families), allowed)
        kind = models.settings[place].output.name
        scores_words = scorer_of(network.network.output) is LINEAR and network.params.keys() <= _SHOWN
        require(scores_words, 'output.kind', kind, 'is not supported by --tour, which requires one score per word')
        folder, settings = paths[place], models.settings[place]
        snapshot = Snapshot.read(folder, models, settings)
        return cls(models, settings, folder, models.names[place], next(iter(others), None), snapshot)

    def reload(self) -> None:
        """Loads the newest checkpoint if it is newer than the loaded checkpoint and can be read."""
        if newest_step(self.folder) not in (None, self.snapshot.step):
            with contextlib.suppress(BadInput, OSError):  # training may have deleted the checkpoint
                self.snapshot = Snapshot.read(self.folder, self.models, self.settings)

    def encode(self, text: str, kind: str) -> list[str]:
        """Tokenizes a context as in `LoadedModels.tokenize`. Raises BadInput if the context is empty or too long."""
        shown = text[:30] + '…' * (len(text) > 30)
        require(len(text) <= MAX_TEXT, 'text', shown, f'must contain at most {MAX_TEXT} characters')
        words = self.models.tokenize(text, kind)
        require(bool(words), 'text', shown, 'must contain at least one word')
        return words

    def show(self, words: Sequence[str]) -> dict[str, Any]:
        """Returns the data that the page shows for a context, as JSON-serializable values."""
        network, step, best_step, _ = self.snapshot
        N = network.network.body.reach
        assert N is not None
        prompt_L = self.models.encode_prompt(words)
        context_1xN = np.pad(prompt_L, (N, 0), constant_values=RARE_ID)[None, -N:]
        ids_1xN, starts_1xN = mark_lines(jnp.asarray(context_1xN), network.network.line_end)
        read_1xN = windows(ids_1xN[:, :, None], N, starts_1xN)[:, 0, :, 0]
        e_NxM, a_K, y_V = (np.asarray(array[0]) for array in _activations(network.params, read_1xN))
        p_V = scipy.special.softmax(y_V.astype(np.float64))
        drives_KxN = np.zeros((0, N))
        if 'H_KxP' in network.params:
            # The input x begins with the features of the last word, so reverse the order.
            H_KxNxM = np.asarray(network.params['H_KxP']).reshape(-1, *e_NxM.shape)[:, ::-1]
            drives_KxN = np.einsum('knm,nm->kn', H_KxNxM, e_NxM)
        context = self.models.show(np.asarray(read_1xN)[0])
        best = generation.largest(p_V, NUM_WORDS)
        answer = {
            'note': self.models.describe_unknown(words),
            'step': step,
            'best_step': best_step,
            'words': [{'word': word, 'features': _short(e_M)} for word, e_M in zip(context, e_NxM)],
            'hidden': _short(a_K),
            'drives': [_short(drives_N) for drives_N in drives_KxN],
            'direct': 'W_VxP' in network.params,
            'next': [
                {'word': word, 'score': float(y_V[i]), 'p': float(p_V[i])}
                for i, word in zip(best, self.models.show(best))
            ],
        }
        return answer | ({'ngram': self._beside(prompt_L, p_V)} if self.ngram else {})

    def units(self) -> dict[str, Any]:
        """Returns the words whose scores each hidden unit raises most, with the step of the checkpoint."""
        return {'step': self.snapshot.step, **self.snapshot.units}

    def training(self) -> dict[str, Any]:
        """Returns the learning curve of the run, with at most MAX_POINTS points per split, and its progress."""
        finished = catalog.is_finished(self.folder)  # read before the log, so that lines added later are not missed
        rows = reporting.read_metrics(self.folder / catalog.METRICS)
        last = rows[-1] if rows else {'step': 0, 'epoch': 0}
        answer = {'checkpoint': self.snapshot.step, 'finished': finished, 'step': last['step'], 'epoch': last['epoch']}
        for split in ('train', 'valid'):
            points = [[row['step'], row[key]] for row in rows if (key := f'{split}_perplexity') in row]
            stride = max(1, -(-len(points) // MAX_POINTS))
            answer[split] = points[::-stride][::-1]  # includes the newest point
        return answer

    def _beside(self, prompt_L: np.ndarray, p_network_V: np.ndarray) -> dict[str, Any]:
        """Returns the n-gram model's most likely words after a context, and the n-gram orders seen in training."""
        assert self.ngram
        name, model = self.ngram
        log_p_V = model.next_word(prompt_L[None])[0]
        best, of_network = (generation.largest(x_V, NUM_WORDS) for x_V in (log_p_V, p_network_V))
        ids = list(dict.fromkeys([*best.tolist(), *of_network.tolist()]))
        contexts, orders = self._matches(model, prompt_L, ids)
        rows = zip(self.models.show(ids), np.exp(log_p_V[ids]), p_network_V[ids], orders)
        words = [{'word': word, 'p': float(p), 'network': float(q), 'order': order} for word, p, q, order in rows]
        return {'name': name, 'orders': contexts, 'words': words}

    def _matches(
        self, model: LanguageModel, prompt_L: np.ndarray, ids: Sequence[int]
    ) -> tuple[list[dict[str, Any]], Sequence[int | None]]:
        """Returns the contexts in an n-gram table, the number of words that follow each, and the order of each word.

        The contexts are sorted by length, longest first. The order of a word is the length of the longest n-gram in the
        table that consists of the end of the context and this word. It is None if the model has no table.
        """
        if not isinstance(model, BackoffModel):
            return [], [None] * len(ids)
        table, n = model.table, model.n
        padded = np.pad(prompt_L, (n, 0), constant_values=RARE_ID)
        contexts: list[dict[str, Any]] = []
        for length in range(n - 1, 0, -1):
            node = table.context_nodes(prompt_L[None], n)[length]
            followers = len(table.successors(length + 1, node)[0]) if node[0] >= 0 else 0
            contexts.append({'context': ' '.join(self.models.show(padded[-length:])), 'followers': followers})
        lines = np.array([[*padded[len(padded) - n + 1 :], i] for i in ids])
        nodes = table.nodes(lines, n)[1:]
        orders = [max(k for k, found in enumerate(nodes, 1) if found[row, -1] >= 0) for row in range(len(ids))]
        return contexts, orders


def newest_step(folder: pathlib.Path) -> int | None:
    """Returns the update number of a run's newest checkpoint, or None if there is none."""
    names = (path.name for path in (folder / 'checkpoints').glob('*'))
    return max((int(name) for name in names if name.isdecimal()), default=None)


@functools.partial(jit_float32, static_argnames=())
def _activations(params: Params, context_1xN: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the features of the context words (1 x N x M), the hidden units (1 x K) and the scores (1 x V)."""
    e_1xNxM = params['C_VxM'][context_1xN]
    a_1xK = nplm.hidden(params, nplm.concatenate(e_1xNxM)) if 'H_KxP' in params else jnp.zeros((1, 0))
    return e_1xNxM, a_1xK, nplm.logits(params, context_1xN)


def _short(x: np.ndarray) -> list[float]:
    return np.round(x.astype(np.float64), 4).tolist()
