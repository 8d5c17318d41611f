"""The paper's network at work on a context, and an n-gram model beside it: the data of the tour. Imports no page.

Dims: B contexts, N words of a context, M features, P = N * M, K hidden units, V vocabulary, L words of a
prompt.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from nplm_jax.apps.explorer.batching import MAX_BATCH
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
from nplm_jax.outputs.softmax import Softmax
from nplm_jax.reporting import catalog
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import loading, workdir
from nplm_jax.runs.command_models import LoadedModels, load_models
from nplm_jax.utils.errors import BadInput, require

FAMILY = 'nplm'
MAX_TEXT = 500  # characters of a context
NUM_WORDS = 10  # that are listed
MAX_POINTS = 400  # of the training curve
_SHOWN = {'C_VxM', 'H_KxP', 'd_K', 'U_VxK', 'W_VxP', 'b_V'}


class Snapshot(NamedTuple):
    """The network as one checkpoint has it.

    Attributes:
        network: The network with the parameters of the best validation so far; the initial ones before the first.
        step: The update number of the checkpoint; None for a packed model.
        best_step: The update number of the best validation, 0 before the first; None for a packed model.
        units: The words whose scores each hidden unit raises most, where it is positive and where negative.
    """

    network: NeuralLanguageModel
    step: int | None
    best_step: int | None
    units: dict[str, list[list[str]]]

    @classmethod
    def read(cls, folder: pathlib.Path, models: LoadedModels, settings: Settings) -> Self:
        """Reads the newest checkpoint of a run. Raises BadInput or OSError if none can be read."""
        network, progress = loading.load_network(folder, settings, models.vocabulary)
        U_KxV = np.asarray(network.params['U_VxK']).T if 'U_VxK' in network.params else ()
        units = {
            sign: [models.show(generation.largest(factor * u_V, 6)) for u_V in U_KxV]
            for sign, factor in (('positive', 1), ('negative', -1))
        }
        step, best_step = (progress['step'], progress['best_step']) if progress else (None, None)
        return cls(network, step, best_step, units)


@dataclasses.dataclass
class Tour:
    """A network, perhaps with an n-gram model beside it.

    Attributes:
        models: The models of the runs.
        settings: The settings of the network's run.
        folder: The folder of its run.
        name: The name of its run.
        ngram: The other model with its name, if there is one.
        snapshot: The network. Another thread may replace it: what needs it twice reads it once.
        newest: The number of the newest checkpoint when it was read.
    """

    models: LoadedModels
    settings: Settings
    folder: pathlib.Path
    name: str
    ngram: tuple[str, LanguageModel] | None
    snapshot: Snapshot
    newest: int | None

    @classmethod
    def load(cls, folders: Sequence[str]) -> Self:
        """Loads the runs, which may be in training.

        Raises:
            BadInput: There is not one network of the paper's family, or more beside it than one n-gram model.
        """
        paths = [catalog.expand_run(folder) for folder in folders]
        families = [workdir.read_settings(path).model.name for path in paths]
        allowed = f'must have one run of model.family={FAMILY}, and may have one n-gram run beside it'
        require(families.count(FAMILY) == 1 and len(families) <= 2, '--tour', ','.join(families), allowed)
        place = families.index(FAMILY)
        models = load_models(folders, finished=False)
        network = models.models[place]
        assert isinstance(network, NeuralLanguageModel)
        others = [pair for i, pair in enumerate(zip(models.names, models.models)) if i != place]
        require(not any(isinstance(model, NeuralLanguageModel) for _, model in others), '--tour', families, allowed)
        kind = models.settings[place].output.name
        scores_words = isinstance(network.network.output, Softmax) and network.params.keys() <= _SHOWN
        require(scores_words, 'output.kind', kind, 'must have one score for each word for --tour')
        folder, settings, newest = paths[place], models.settings[place], newest_step(paths[place])
        snapshot = Snapshot.read(folder, models, settings)
        return cls(models, settings, folder, models.names[place], next(iter(others), None), snapshot, newest)

    def reload(self) -> None:
        """Takes the parameters of the newest checkpoint if it is newer; one that cannot be read is left out."""
        newest = newest_step(self.folder)
        if newest in (None, self.newest):
            return
        with contextlib.suppress(BadInput, OSError):  # training has just deleted it
            self.snapshot = Snapshot.read(self.folder, self.models, self.settings)
            self.newest = newest

    def encode(self, text: str, kind: str) -> list[str]:
        """Returns the words of a context. Raises BadInput if it is empty or too long; `kind` as in `tokenize`."""
        shown = text[:30] + '…' * (len(text) > 30)
        require(len(text) <= MAX_TEXT, 'text', shown, f'must be at most {MAX_TEXT} characters')
        words = self.models.tokenize(text, kind)
        require(bool(words), 'text', shown, 'must have at least one word')
        return words

    def show(self, texts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Returns what the page shows of each context, for JSON.

        Args:
            texts: The words of at most MAX_BATCH contexts.
        """
        network, step, best_step, _ = self.snapshot
        N = network.network.body.reach
        assert N is not None
        contexts_BxN = np.full((MAX_BATCH, N), RARE_ID, np.int32)  # one shape, so that one program compiles
        prompts = [self.models.encode_prompt(words) for words in texts]
        for row_N, prompt_L in zip(contexts_BxN, prompts):
            ids = prompt_L[-N:]
            row_N[N - len(ids) :] = ids
        ids_BxN, starts_BxN = mark_lines(jnp.asarray(contexts_BxN), network.network.line_end)
        read_BxN = windows(ids_BxN[:, :, None], N, starts_BxN)[:, 0, :, 0]
        arrays = jax.tree.map(np.asarray, _activations(network.params, read_BxN))
        p_BxV = scipy.special.softmax(arrays[-1][: len(texts)].astype(np.float64), axis=1)
        answers = []
        for i, words in enumerate(texts):
            answer = self._describe(network.params, np.asarray(read_BxN)[i], *(array[i] for array in (*arrays, p_BxV)))
            note = self.models.describe_unknown(words)
            answers.append({'note': note, 'step': step, 'best_step': best_step, **answer})
            if self.ngram:
                answers[-1]['ngram'] = self._beside(prompts[i], p_BxV[i])
        return answers

    def units(self) -> dict[str, Any]:
        """Returns the words whose scores each hidden unit raises most, and of which checkpoint."""
        snapshot = self.snapshot
        return {'step': snapshot.step, **snapshot.units}

    def training(self) -> dict[str, Any]:
        """Returns the curve of the run's log, at most MAX_POINTS of each kind, and how far the run is."""
        path, finished = self.folder / catalog.METRICS, catalog.is_finished(self.folder)
        stat = path.stat() if path.exists() else None
        curves = _curves(path, stat and (stat.st_mtime_ns, stat.st_size))
        return {'checkpoint': self.snapshot.step, 'finished': finished, **curves}

    def _describe(
        self, params: Params, ids_N: np.ndarray, e_NxM: np.ndarray, a_K: np.ndarray, y_V: np.ndarray, p_V: np.ndarray
    ) -> dict[str, Any]:
        drives_KxN = np.zeros((0, len(ids_N)))
        if 'H_KxP' in params:
            H_KxNxM = np.asarray(params['H_KxP']).reshape(-1, *e_NxM.shape)[:, ::-1]  # x begins with the last word
            drives_KxN = np.einsum('knm,nm->kn', H_KxNxM, e_NxM)
        best = generation.largest(p_V, NUM_WORDS)
        words = [{'word': w, 'features': _short(e_M)} for w, e_M in zip(self.models.show(ids_N), e_NxM)]
        return {
            'words': words,
            'hidden': _short(a_K),
            'drives': [_short(drives_N) for drives_N in drives_KxN],
            'direct': 'W_VxP' in params,
            'next': [
                {'word': word, 'score': float(y_V[i]), 'p': float(p_V[i])}
                for i, word in zip(best, self.models.show(best))
            ],
        }

    def _beside(self, prompt_L: np.ndarray, p_network_V: np.ndarray) -> dict[str, Any]:
        """Returns what the n-gram model says of a context: its likeliest words, and which orders it has seen."""
        assert self.ngram
        name, model = self.ngram
        log_p_V = model.next_word(prompt_L[None])[0]
        best, of_network = (generation.largest(x_V, NUM_WORDS) for x_V in (log_p_V, p_network_V))
        answer: dict[str, Any] = {'name': name, 'orders': []}
        if isinstance(model, BackoffModel):
            nodes = model.table.context_nodes(prompt_L[None], model.n)
            padded = np.pad(prompt_L, (model.n, 0), constant_values=RARE_ID)
            for length in range(model.n - 1, 0, -1):
                followers = len(model.table.successors(length + 1, nodes[length])[0]) if nodes[length][0] >= 0 else 0
                answer['orders'].append(
                    {'context': ' '.join(self.models.show(padded[-length:])), 'followers': followers}
                )
        ids = list(dict.fromkeys([*best.tolist(), *of_network.tolist()]))
        orders = self._orders(model, prompt_L, ids)
        answer['words'] = [
            {'word': word, 'p': float(np.exp(log_p_V[i])), 'network': float(p_network_V[i]), 'order': order}
            for i, word, order in zip(ids, self.models.show(ids), orders)
        ]
        return answer

    def _orders(self, model: LanguageModel, prompt_L: np.ndarray, ids: Sequence[int]) -> list[int | None]:
        """Returns the length of the longest n-gram of the table with which each word ends the context."""
        if not isinstance(model, BackoffModel):
            return [None] * len(ids)
        padded = np.pad(prompt_L, (model.n, 0), constant_values=RARE_ID).tolist()
        lines = np.array([[*padded[len(padded) - model.n + 1 :], i] for i in ids])
        nodes = model.table.nodes(lines, model.n)[1:]
        return [max(k for k, found in enumerate(nodes, 1) if found[row, -1] >= 0) for row in range(len(ids))]


def newest_step(folder: pathlib.Path) -> int | None:
    """Returns the update number of a run's newest checkpoint; None where there is none."""
    names = (path.name for path in (folder / 'checkpoints').glob('*'))
    return max((int(name) for name in names if name.isdecimal()), default=None)


@functools.lru_cache(maxsize=1)
def _curves(path: pathlib.Path, version: Hashable) -> dict[str, Any]:
    """Returns the curves of a log and its last update and epoch; reads a `version` of the file once."""
    rows = reporting.read_metrics(path)
    answer: dict[str, Any] = {'step': rows[-1]['step'], 'epoch': rows[-1]['epoch']} if rows else {'step': 0, 'epoch': 0}
    for split in ('train', 'valid'):
        points = [[row['step'], row[key]] for row in rows if (key := f'{split}_perplexity') in row]
        stride = max(1, -(-len(points) // MAX_POINTS))
        answer[split] = points[::-stride][::-1]  # the newest is one of them
    return answer


@functools.partial(jit_float32, static_argnames=())
def _activations(params: Params, contexts_BxN: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the features of each context word, the hidden units and the scores: B x N x M, B x K, B x V."""
    e_BxNxM = params['C_VxM'][contexts_BxN]
    a_BxK = nplm.hidden(params, nplm.concatenate(e_BxNxM)) if 'H_KxP' in params else jnp.zeros((len(e_BxNxM), 0))
    return e_BxNxM, a_BxK, nplm.logits(params, contexts_BxN)


def _short(x: np.ndarray) -> list[float]:
    return np.round(x.astype(np.float64), 4).tolist()
