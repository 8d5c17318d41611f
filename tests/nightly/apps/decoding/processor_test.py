"""Tests that transformers' Wav2Vec2ProcessorWithLM decodes, saves and loads with this package's decoder."""

import json
import re
import sys

import numpy as np
import pytest
from helpers import ROOT

from nplm_jax.decoding import build_ctcdecoder

transformers = pytest.importorskip('transformers', reason='pip install transformers')
processing = pytest.importorskip('transformers.models.wav2vec2_with_lm.processing_wav2vec2_with_lm')

pytestmark = pytest.mark.filterwarnings('ignore')  # of transformers; and of a fork, whose processes run no JAX

PAGE = ROOT / 'docs' / 'howto' / 'decoding.md'
VOCABULARY = {'<pad>': 0, '<s>': 1, '</s>': 2, '<unk>': 3, '|': 4, **{c: i for i, c in enumerate('bgnsuy', start=5)}}
ARPA = """\\data\\
ngram 1=5
ngram 2=5

\\1-grams:
-10\t<unk>\t0
0\t<s>\t0
0\t</s>\t0
0\tbugs\t0
0\tbunny\t0

\\2-grams:
0\tbunny </s>
-10\tbugs </s>
0\t<s> bugs
-10\t<s> bunny
0\tbugs bunny

\\end\\
"""


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """A processor with our decoder, created by the code in docs/howto/decoding.md."""
    for name in ('pyctcdecode', 'pyctcdecode.alphabet', 'pyctcdecode.constants', 'kenlm'):
        monkeypatch.setitem(sys.modules, name, None)  # undone after the test
    (lines,) = re.findall(r'^```python\n(import sys\n.*?)^```', PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(lines, {})
    for function in (processing.is_pyctcdecode_available, processing.is_kenlm_available):
        getattr(function, 'cache_clear', int)()
    (tmp_path / 'vocab.json').write_text(json.dumps(VOCABULARY))
    (tmp_path / 'lm.arpa').write_text(ARPA)
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / 'vocab.json'))
    labels = sorted(VOCABULARY, key=VOCABULARY.__getitem__)
    decoder = build_ctcdecoder(labels, tmp_path / 'lm.arpa', ['bugs', 'bunny'])
    return processing.Wav2Vec2ProcessorWithLM(transformers.Wav2Vec2FeatureExtractor(), tokenizer, decoder)


def logits():
    """Returns logits of 'bugs' or 'bunny', of which the second is slightly more probable, followed by 'bunny'."""
    p_FxN = np.full((13, len(VOCABULARY)), 1e-6)
    paths = (['b', 'u', 'g', 's', '<pad>', '<pad>'], 0.49), (['b', 'u', 'n', '<pad>', 'n', 'y'], 0.51)
    for path, p in paths:
        for frame, token in enumerate(path):
            p_FxN[frame, VOCABULARY[token]] += p
    for frame, token in enumerate(['|', 'b', 'u', 'n', '<pad>', 'n', 'y'], start=6):
        p_FxN[frame, VOCABULARY[token]] += 1
    return np.log(p_FxN)


def test_the_processor_decodes_saves_and_loads(processor, tmp_path):
    found = processor.decode(logits(), output_word_offsets=True)
    assert found.text == 'bugs bunny'
    assert [row['word'] for row in found.word_offsets] == ['bugs', 'bunny']
    assert processor.decode(logits(), alpha=0.0).text == 'bunny bunny'
    assert processor.decode(logits(), alpha=0.5, hotwords=['bunny'], hotword_weight=20.0).text == 'bunny bunny'
    batch = processor.batch_decode(np.stack([logits(), logits()]), num_processes=2)
    assert batch.text == ['bugs bunny'] * 2 and batch.lm_score == pytest.approx([found.lm_score] * 2)
    processor.save_pretrained(tmp_path / 'saved')
    loaded = processing.Wav2Vec2ProcessorWithLM.from_pretrained(str(tmp_path / 'saved'))
    again = loaded.decode(logits())
    assert (again.text, again.lm_score) == (found.text, pytest.approx(found.lm_score))
