"""Evaluates trained models with EleutherAI's lm-evaluation-harness.

    python -m nplm_jax.lm_eval run --model nplm --model_args run=runs/brown-lstm --tasks blimp

The command `lm_eval` does not find models in other packages, so `nplm_jax.lm_eval` registers the model `nplm` and then
runs the command. In Python, `import nplm_jax.lm_eval` registers the model. The argument `run` is the folder or name of
a run, or a packed model. Several runs joined by `+` form a mixture; `weights` are numbers separated by `;`, or a file
written by `nplm mix`. Log-likelihoods are in nats, while `nplm score` prints decimal logarithms.

Dims: T tokens.
"""

import collections
import itertools
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from nplm_jax.data import unspaced_scripts
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE_ID
from nplm_jax.inference import generation, scoring
from nplm_jax.inference.scoring import LOG_10
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    raise BadInput('lm_eval', 'is not installed; install it with: pip install "nplm-jax[evaluation]"') from None

_OF_ALL_MODELS = ('batch_size', 'max_batch_size', 'device', 'trust_remote_code')
_MAX_TOKENS = 256  # default maximum length of a generated text
_BOUNDARY = re.compile(f' ?(?:{"|".join(BOUNDARY_TOKENS)}) ?')  # a newline in a generated text


@register_model('nplm')
class NplmLM(LM):
    """A model of the harness that wraps a trained model or a mixture. Texts are tokenized as in `nplm score`."""

    def __init__(self, run: str, weights: str = '', seed: int = 1, **others: Any) -> None:
        """Loads the models.

        Args:
            run: A run, or several runs joined by `+`.
            weights: The mixture weights: numbers separated by `;`, or a file written by `nplm mix`. The default is
                equal weights.
            seed: The random seed for sampling texts.
            **others: Arguments that the harness passes to all models, such as `device`. They are ignored.

        Raises:
            BadInput: An argument is unknown, for example misspelled.
        """
        super().__init__()
        for name, value in others.items():
            similar = did_you_mean(name, ('run', 'weights', 'seed'))
            require(name in _OF_ALL_MODELS, name, value, f'is not an argument of the model nplm{similar}')
        loaded = load_models(str(run).split('+'), str(weights).replace(';', ','))
        self._loaded, self._vocabulary, self._model = loaded, loaded.vocabulary, loaded.mixture
        self._start, self._seed = LineStart.of(loaded.vocabulary), seed

    def __repr__(self) -> str:
        names = '+'.join(self._loaded.names)
        return f'<NplmLM {names[:60]}: {len(self._vocabulary):,} words, {self._model!r}>'

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Returns log P of each continuation, in nats, and whether greedy decoding generates the continuation."""
        encoded = [self._encode(request.args[0], ''.join(request.args)) for request in requests]
        results = []
        for (context_T, whole_T), line in zip(encoded, self._score([whole_T for _, whole_T in encoded])):
            first = _common_length(context_T, whole_T)
            log_p = float(line.log10_p_T[first:].sum()) * LOG_10
            results.append((log_p, self._is_greedy(whole_T, first)))
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Returns log P of each text, in nats."""
        texts = [ids_T for request in requests for ids_T in self._encode(request.args[0])]
        return [float(line.log10_p_T.sum()) * LOG_10 for line in self._score(texts)]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Generates a continuation of each context, up to the first stop sequence.

        Repeated requests for the same context are sampled independently.
        """
        repeats: collections.Counter[str] = collections.Counter()
        texts = []
        for request in requests:
            (context, options), key = request.args, repr(request.args)
            texts.append(self._generate(context, options, self._seed + repeats[key]))
            repeats[key] += 1
        return texts

    def _generate(self, context: str, options: dict[str, Any], seed: int) -> str:
        until = options.get('until') or []
        stops = [until] if isinstance(until, str) else list(filter(None, until))  # every text contains ''
        temperature = float(options.get('temperature', 1) or 0) if options.get('do_sample') else 0.0
        kept = options.get('top_k') or None, options.get('top_p')
        choice = generation.Choice(temperature, *kept) if temperature else generation.GREEDY

        def text_of(ids_T: Sequence[int]) -> str:
            tokenizer = self._vocabulary.tokenizer
            text = tokenizer.decode(self._vocabulary.decode(ids_T))
            return text if tokenizer.is_lossless else _BOUNDARY.sub('\n', text)

        def is_enough(ids_T: Sequence[int]) -> bool:
            return any(stop in text_of(ids_T) for stop in stops)

        (ids_T,) = self._encode(context)
        prompt = np.concatenate([self._start.before(ids_T, continues=True), ids_T])
        numbers = (options.get(key) for key in ('max_gen_toks', 'max_new_tokens'))
        number = int(next((number for number in numbers if number is not None), _MAX_TOKENS))
        if not number:
            return ''
        (new_T,) = generation.sample(self._model, prompt, number, 1, choice, seed, is_enough)
        text = text_of(new_T)
        return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]

    def _encode(self, *texts: str) -> list[np.ndarray]:
        """Returns the int32 ids of each text, whose lines are joined as in a corpus. See `unspaced_scripts.join`."""
        is_lossless, found = self._vocabulary.tokenizer.is_lossless, []
        for text in unspaced_scripts.join(self._vocabulary, texts):
            lines = self._loaded.tokenize_lines([text] if is_lossless else text.split('\n'), '')
            found.append(self._vocabulary.encode(itertools.chain.from_iterable(lines)).astype(np.int32))
        return found

    def _score(self, texts: Sequence[np.ndarray]) -> list[scoring.Line]:
        """Scores texts and, if many words are unknown, prints a warning to stderr."""
        size = sum(map(len, texts))
        share = sum(np.count_nonzero(ids_T == RARE_ID) for ids_T in texts) / max(size, 1)
        if warning := self._loaded.describe_oov(share):
            print(warning, file=sys.stderr)
        return scoring.score(self._model, texts, self._start)

    def _is_greedy(self, ids_T: np.ndarray, first: int) -> bool:
        """Returns whether greedy decoding, which never generates <rare>, generates the tokens from index `first` on."""
        if first == len(ids_T):
            return True
        before_T = np.concatenate([self._start.before(ids_T), ids_T[:first]]).astype(np.int32)
        state = self._model.prefill(before_T[None])
        for t in range(first, len(ids_T)):
            state = self._model.advance(state, ids_T[t - 1 : t]) if t > first else state
            if np.argmax(self._model.predict(state)[0][RARE_ID + 1 :]) + RARE_ID + 1 != ids_T[t]:
                return False
        return True


def _common_length(first_T: np.ndarray, second_T: np.ndarray) -> int:
    """Returns the length of the common prefix of two texts."""
    shorter = min(len(first_T), len(second_T))
    return int(np.argmin(np.append(first_T[:shorter] == second_T[:shorter], False)))
