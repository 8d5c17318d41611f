"""The studies of section 5: what they compute, and what they refuse."""

import pytest
from helpers import refuses

from experiments import study
from experiments.paper.section5 import open_vocabulary, trees


@pytest.mark.parametrize(
    'words,start',
    [
        ('--take=foo', "--take='foo': "),
        ('--take=../x=runs/x', "--take='../x=runs/x': "),
        ('--take=huffman=nosuch', 'nosuch: '),
        ('--write=nosuch', "--write='nosuch': "),
        ('--write=nosuch --features=nosuch', 'nosuch: '),
        ('--features=runs/x', "--features='runs/x': "),
    ],
)  # fmt: skip
def test_words_that_the_study_of_trees_cannot_use_are_one_line(words, start, capsys):
    with pytest.raises(SystemExit, match='^2$'):
        study.run(trees.__doc__, define=trees.define, measure=trees.main, show=trees.table, argv=words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


@pytest.mark.parametrize('words,key', [([], 'DIR'), (['a', 'nosuch'], 'nosuch')])
def test_folders_that_the_open_vocabulary_lacks_are_refused_before_anything_is_trained(words, key, monkeypatch):
    monkeypatch.setattr(open_vocabulary, 'run_study', lambda *_: pytest.fail('it was trained'))
    with refuses(key):
        open_vocabulary.main(study.Flags(folders=words))
