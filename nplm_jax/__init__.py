"""A Neural Probabilistic Language Model (Bengio et al., JMLR 3, 2003) in JAX.

Most programs and notebooks need only the names in `__all__`:

    import nplm_jax

    run = nplm_jax.train('text', changes={'corpus.path': 'my_text.txt'})
    run = nplm_jax.load(run.folder)  # reads the saved run: run.settings, run.vocabulary, run.model

Each of these names is imported on first use (PEP 562), so `import nplm_jax` takes milliseconds and does not import JAX.
Import other names from their modules, as in `from nplm_jax.training.step import train_step`.
"""

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nplm_jax import decoding, kenlm
    from nplm_jax.apps.psycholinguistics.frames import surprisal
    from nplm_jax.config.settings import override
    from nplm_jax.data.vocabulary import Vocabulary
    from nplm_jax.inference.embeddings import neighbours
    from nplm_jax.inference.generation import Choice, encode_prompt, sample
    from nplm_jax.inference.induction import induce
    from nplm_jax.inference.loaded_model import LoadedModel
    from nplm_jax.inference.perplexity import perplexity
    from nplm_jax.models import mixture, nplm
    from nplm_jax.models.language_model import LanguageModel
    from nplm_jax.models.network import Network
    from nplm_jax.models.open_vocabulary import OpenVocabulary
    from nplm_jax.runs import spelling
    from nplm_jax.runs.command_line import load_config
    from nplm_jax.runs.experiment import load_settings
    from nplm_jax.runs.loading import load, load_dataset
    from nplm_jax.runs.train_call import train
else:  # hidden from type checkers, which would otherwise accept misspelled names

    def __getattr__(name: str) -> Any:
        """Imports a name in `__all__` on first use."""
        if name not in _MODULES:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        path = _MODULES[name]
        value = globals()[name] = pkgutil.resolve_name(f'{__name__}.{path if ":" in path else f"{path}:{name}"}')
        return value


__version__ = '0.1.0'
__all__ = [
    'Choice',
    'LanguageModel',
    'LoadedModel',
    'Network',
    'OpenVocabulary',
    'Vocabulary',
    'decoding',
    'encode_prompt',
    'induce',
    'kenlm',
    'load',
    'load_config',
    'load_dataset',
    'load_settings',
    'mixture',
    'neighbours',
    'nplm',
    'override',
    'perplexity',
    'sample',
    'spelling',
    'surprisal',
    'train',
]

_MODULES = {  # the module that defines each public name; after a trailing colon, the name is the module itself
    'Choice': 'inference.generation',
    'LanguageModel': 'models.language_model',
    'LoadedModel': 'inference.loaded_model',
    'Network': 'models.network',
    'OpenVocabulary': 'models.open_vocabulary',
    'Vocabulary': 'data.vocabulary',
    'decoding': 'decoding:',
    'encode_prompt': 'inference.generation',
    'induce': 'inference.induction',
    'kenlm': 'kenlm:',
    'load': 'runs.loading',
    'load_config': 'runs.command_line',
    'load_dataset': 'runs.loading',
    'load_settings': 'runs.experiment',
    'mixture': 'models.mixture:',
    'neighbours': 'inference.embeddings',
    'nplm': 'models.nplm:',
    'override': 'config.settings',
    'perplexity': 'inference.perplexity',
    'sample': 'inference.generation',
    'spelling': 'runs.spelling:',
    'surprisal': 'apps.psycholinguistics.frames',
    'train': 'runs.train_call',
}


def __dir__() -> list[str]:
    """Returns the names for tab completion, including names in `__all__` that have not been imported yet."""
    return sorted({*globals(), *__all__})
