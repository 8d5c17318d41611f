"""The plug-ins of docs/howto/plugins.md."""

import re

from helpers import ROOT

PAGE = (ROOT / 'docs' / 'howto' / 'plugins.md').read_text()
KINDS, CONFIG, OF_A_ROW = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
NAMES = {
    'corpus.name': 'my_parts:sums',
    'model.family': 'my_parts:WeightedMean',
    'output.kind': 'my_parts:SmoothedSoftmax',
    'optimizer.name': 'my_parts:signum',
    'optimizer.schedule': 'my_parts:InverseSqrt',
    'corpus.tokens': 'my_parts:ShortWords',
}
