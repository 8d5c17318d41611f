"""Writes the model cards of finished runs: Markdown files that begin with metadata for Hugging Face."""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from nplm_jax.config import plugins
from nplm_jax.config.settings import LOADED_PLUGINS, plugin_modules
from nplm_jax.data import corpora
from nplm_jax.data.stream import RARE
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.reporting.catalog import Run
from nplm_jax.reporting.results import notes, perplexity_table
from nplm_jax.reporting.text import markdown_table

FILE = 'README.md'
_PACKED = """```bash
nplm generate {word}{flags}
nplm score {word}{flags} < text.txt
```

```python
run = nplm_jax.load({file!r})
```"""
_HUGGING_FACE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('FOLDER')
model = AutoModelForCausalLM.from_pretrained('FOLDER', trust_remote_code=True)
```"""


def make(run: Run, hugging_face: bool = False) -> str:
    """Returns the model card of a run as Markdown.

    Args:
        run: A finished run.
        hugging_face: Whether the card is for a folder written by `nplm export --to=hf`, instead of a packed model.
    """
    settings, results = run.settings, run.results or {}
    numbers = {} if run.imported else results.get('perplexity', {})
    flags = ' '.join(['', *plugins.flags(plugin_modules(settings, LOADED_PLUGINS))])
    file = f'{settings.name}.nplm'
    how = _HUGGING_FACE if hugging_face else _PACKED.format(file=file, word=shlex.quote(file), flags=flags)
    parts = [
        _metadata(run, numbers, 'transformers' if hugging_face else 'nplm-jax'),
        f'# {settings.name}',
        f'A language model of the family `{settings.model.name}` with {results.get("vocabulary", 0):,} '
        f'{_unit(run)}, {"imported" if run.imported else "trained"} by nplm-jax, a JAX implementation of Bengio et al. '
        '(JMLR 3, 2003) and its successors.',
        f'## Use\n\n{how}',
        f'## Training data\n\n{_data(run)}',
    ]
    if numbers:
        sentences = ' '.join([*notes(results, settings.corpus), _denominators(results)])
        parts.append(f'## Results\n\n{perplexity_table(results, settings.paper)}\n\n{sentences}')
    if not run.imported:
        parts.append(f'## Training\n\n{_training(run)}')
    parts.append(f'## Intended use and limitations\n\n{_limitations(run)}')
    return '\n\n'.join(parts) + '\n'


def _metadata(run: Run, numbers: Mapping[str, Any], library: str) -> str:
    """Returns the metadata of a model card as YAML. Writes the values as JSON, which is a subset of YAML."""
    values: dict[str, Any] = {
        'library_name': library,  # the library that loads the files
        'pipeline_tag': 'text-generation',
        'tags': ['language-model', 'jax', run.values['model.family']],
        **({} if run.imported else {'datasets': [run.values['corpus.name']]}),
    }
    if numbers.get('test') is not None:
        name = f'test perplexity per {_unit(run)[:-1]}'
        metric = {'type': 'perplexity', 'value': round(numbers['test'], 2), 'name': name}
        dataset = {'name': run.values['corpus.name'], 'type': run.values['corpus.name'], 'split': 'test'}
        task = {'type': 'text-generation'}
        values['model-index'] = [
            {'name': run.values['name'], 'results': [{'task': task, 'dataset': dataset, 'metrics': [metric]}]}
        ]
    return '\n'.join(['---', *(f'{key}: {json.dumps(value)}' for key, value in values.items()), '---'])


def _unit(run: Run) -> str:
    return 'words' if isinstance(run.settings.corpus.tokenizer, WordTokenizer) else 'tokens'


def _data(run: Run) -> str:
    """Describes the training text in a section of the card."""
    if run.imported:
        return 'The model was imported from an ARPA file. ARPA files do not name the training text.'
    corpus, counts = run.settings.corpus, (run.results or {}).get('words', {})
    words = f' Only the first {corpus.words:,} words were used (`corpus.words`).' if corpus.words else ''
    sizes = ', '.join(f'{n:,} for {name}' for name, n in zip(('training', 'validation', 'test'), counts.values()))
    return f'{corpora.describe(corpus)}{words} Tokens: {sizes or "not recorded"}.'


def _denominators(results: Mapping[str, Any]) -> str:
    """States over which units the perplexities are averaged, and how unknown words are scored."""
    test = results.get('sizes', {}).get('test', {})
    sizes = ', '.join(f'{count:,} {unit.replace("utf8_", "UTF-8 ")}' for unit, count in test.items())
    text = f'The test text has {sizes}; the total log-probability is the same for all units.' if sizes else ''
    if results.get('oov', {}).get('test'):
        text += f' {RARE} lowers the perplexity; compare perplexities only between models with the same vocabulary.'
    return text.strip()


def _training(run: Run) -> str:
    results = run.results or {}
    origins = results.get('origins', [results])  # of each process that trained the model
    versions = [', '.join(map(' '.join, origin.get('versions', {}).items())) for origin in origins]
    facts = {
        'parameters': f'{results["parameters"]:,}' if 'parameters' in results else None,
        'seconds': results.get('seconds'),
        'device': _distinct(origin.get('device') for origin in origins),
        'seed': results.get('seed'),
        'commit': _distinct(origin.get('commit') for origin in origins),
        'versions': _distinct(versions),
    }
    return markdown_table(['', ''], [[name, value] for name, value in facts.items() if value not in (None, '')])


def _distinct(values: Iterable[Any]) -> str:
    """Joins distinct values. A missing value among others is shown as `not recorded`."""
    distinct = dict.fromkeys(str(value or 'not recorded') for value in values)
    return '; '.join(distinct) if distinct.keys() != {'not recorded'} else ''


def _limitations(run: Run) -> str:
    use = 'Research and teaching, such as computing surprisal, re-ranking hypotheses and comparing small models.'
    data = 'The model reflects its training text, including any biases. Do not rely on generated text.'
    words = _unit(run) == 'words'
    unknown = ' It does not distinguish between out-of-vocabulary words.' if words else ''
    return f'{use} {data}{unknown}'
