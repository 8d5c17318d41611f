"""Reads the plug-ins from docs/howto/plugins.md."""

import re

from helpers import ROOT

PAGE = (ROOT / 'docs' / 'howto' / 'plugins.md').read_text()
KINDS, CONFIG, OF_A_ROW = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
NAMES = {
    'corpus.name': 'my_models:sums',
    'model.family': 'my_models:WeightedMean',
    'output.kind': 'my_models:SmoothedSoftmax',
    'optimizer.name': 'my_models:signum',
    'optimizer.schedule': 'my_models:InverseSqrt',
    'corpus.tokens': 'my_models:ShortWords',
}
