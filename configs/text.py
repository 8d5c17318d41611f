"""Any UTF-8 text of yours: a file, or a folder of files (each one a text, blank lines between paragraphs).

    python launch.py --config=configs/text.py --config.corpus.path=my_novel.txt
    python launch.py --config=configs/text.py --config.corpus.path=train.txt \\
        --config.corpus.valid_path=valid.txt --config.corpus.test_path=test.txt

Without files of their own, validation and test are the next tenth and the last tenth of the text. Text that is
tokenized already: --config.corpus.tokens=whitespace. Words seen fewer than three times become <rare>.
"""

from ml_collections import ConfigDict

from configs import default


def get_config() -> ConfigDict:
    """A network for a hundred thousand to a few million words."""
    c = default.get_config()
    c.name = 'text'
    c.corpus.name = 'text'
    c.corpus.min_count = 3
    c.model.n, c.model.m, c.model.h = 5, 60, 100
    return c
