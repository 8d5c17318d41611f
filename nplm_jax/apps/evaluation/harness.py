"""Models of this package in EleutherAI's lm-evaluation-harness.

    python -m nplm_jax.lm_eval run --model nplm --model_args run=runs/brown-lstm --tasks blimp

The plain command `lm_eval` finds no models of other packages; this module registers the name `nplm` and calls it. In
Python, `import nplm_jax.lm_eval` registers the name. `run` is a run, its name, or a packed model; several with `+`
between them are mixed, with `weights`: numbers with `;` between them, or a file of `nplm mix`. Log-likelihoods are
natural; `nplm score` prints decimal logarithms.

Dims: T tokens.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from nplm_jax.data.stream import RARE_ID
from nplm_jax.inference import generation, scoring
from nplm_jax.inference.scoring import LOG_10, LineStart
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import BadInput

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    raise BadInput('lm_eval', 'not installed: pip install "nplm-jax[evaluation]"') from None

_MAX_TOKENS = 256  # of a generated text, unless a task says otherwise


@register_model('nplm')
class NplmLM(LM):
    """N-grams, networks and mixtures, read as `nplm score` reads them."""

    def __init__(self, run: str, weights: str = '', seed: int = 1, **_ignored: Any) -> None:
        """Loads the models.

        Args:
            run: The run, or several with `+` between them.
            weights: The weights of the mixture; equal ones by default.
            seed: Of texts that are sampled.
            **_ignored: What the harness gives every model, such as `device` and `batch_size`.
        """
        super().__init__()
        loaded = load_models(str(run).split('+'), str(weights).replace(';', ','))
        self._loaded, self._vocabulary, self._model = loaded, loaded.vocabulary, loaded.mixture
        self._start, self._seed = LineStart.of(loaded.vocabulary), seed

    def __repr__(self) -> str:
        names = '+'.join(self._loaded.names)
        return f'<NplmLM {names[:60]}: {len(self._vocabulary):,} words, {self._model!r}>'

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Returns log P of each continuation, nats, and whether it is what greedy decoding writes."""
        contexts = [self._read(request.args[0]) for request in requests]
        wholes = [self._read(''.join(request.args)) for request in requests]
        results = []
        for context_T, whole_T, line in zip(contexts, wholes, self._score(wholes)):
            first = _common_length(context_T, whole_T)
            log_p = float(line.log10_p_T[first:].sum()) * LOG_10
            results.append((log_p, self._is_greedy(whole_T, first)))
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Returns log P of each text, nats."""
        texts = [self._read(request.args[0]) for request in requests]
        return [float(line.log10_p_T.sum()) * LOG_10 for line in self._score(texts)]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Returns what each context is continued with, up to one of the texts that end it."""
        return [self._generate(*request.args) for request in requests]

    def _generate(self, context: str, options: dict[str, Any]) -> str:
        until = options.get('until') or []
        ends = [until] if isinstance(until, str) else list(until)
        temperature = float(options.get('temperature') or 0) if options.get('do_sample') else 0.0
        choice = generation.Choice(temperature) if temperature else generation.GREEDY

        def text_of(ids_T: Sequence[int]) -> str:
            return self._vocabulary.tokenizer.decode(self._vocabulary.decode(ids_T))

        def is_enough(ids_T: Sequence[int]) -> bool:
            return any(end in text_of(ids_T) for end in ends)

        ids_T = self._read(context)
        prompt = np.concatenate([self._start.before(ids_T), ids_T])
        numbers = (options.get(key) for key in ('max_gen_toks', 'max_new_tokens'))
        number = int(next((number for number in numbers if number is not None), _MAX_TOKENS))
        if not number:
            return ''
        (new_T,) = generation.sample(self._model, prompt, number, 1, choice, self._seed, is_enough)
        text = text_of(new_T)
        return text[: min((text.index(end) for end in ends if end in text), default=len(text))]

    def _read(self, text: str) -> np.ndarray:
        """Returns the ids of a text, int32; its lines follow each other, as in a corpus."""
        lines = [text] if self._vocabulary.tokenizer.is_lossless else text.split('\n')
        tokens = [token for line in self._loaded.tokenize_lines(lines, '') for token in line]
        return self._vocabulary.encode(tokens).astype(np.int32)

    def _score(self, texts: Sequence[np.ndarray]) -> list[scoring.Line]:
        """Scores texts, and warns on stderr if too many of their words are unknown."""
        size = sum(map(len, texts))
        share = sum(np.count_nonzero(ids_T == RARE_ID) for ids_T in texts) / max(size, 1)
        if warning := self._loaded.describe_oov(share):
            print(warning, file=sys.stderr)
        return scoring.score(self._model, texts, self._start)

    def _is_greedy(self, ids_T: np.ndarray, first: int) -> bool:
        """Returns whether each token from `first` on is the most likely one after those before it; reads each once."""
        if first == len(ids_T):
            return True
        before_T = np.concatenate([self._start.before(ids_T), ids_T[:first]]).astype(np.int32)
        state = self._model.prefill(before_T[None])
        for t in range(first, len(ids_T)):
            state = self._model.advance(state, ids_T[t - 1 : t]) if t > first else state
            if np.argmax(self._model.predict(state)[0]) != ids_T[t]:
                return False
        return True


def _common_length(first_T: np.ndarray, second_T: np.ndarray) -> int:
    """Returns how many tokens two texts begin with alike."""
    shorter = min(len(first_T), len(second_T))
    return int(np.argmin(np.append(first_T[:shorter] == second_T[:shorter], False)))
