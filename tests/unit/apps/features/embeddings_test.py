"""Tests neighbours, maps and exports of word features."""

import json
import re
import sys

import jax
import numpy as np
import pytest
from helpers import refuses

from configs import sentences
from nplm_jax.apps.features import brown_tags, maps
from nplm_jax.apps.features import command as features
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.data import brown
from nplm_jax.data.stream import RARE
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import embeddings
from nplm_jax.runs import experiment

WORDS = (RARE, 'the', 'café', 'well-known', "'s", '北京', '1.5', '``', '#', *(f'w{i}' for i in range(21)))
VOCABULARY = Vocabulary(WORDS, tuple(range(len(WORDS), 0, -1)))


@pytest.fixture(scope='module')
def C_VxM():
    values = np.random.default_rng(0).normal(size=(len(WORDS), 7)).astype(np.float32)
    values[3], values[4] = 1e-30, [np.float32(1) / 3, -0.0, 1e20, np.pi, 5e-39, 1 + 2**-23, -7]
    values[5] = np.frombuffer(b' \n\n a\n  \n\n  =\n\n' + b' ' * 13, '<f4')  # bytes that look like the format's own
    return values


def test_neighbours_by_hand():
    points = np.array([[1, 0], [10, 1], [0, 3], [-2, 0], [0, 0]])
    ids, cosines = embeddings.neighbours(points, [0, 3], 2)
    assert ids.tolist() == [[1, 2], [2, 4]]
    np.testing.assert_allclose(cosines, [[10 / 101**0.5, 0], [0, 0]], atol=1e-12)
    assert embeddings.neighbours(points, [2], 99)[0].shape == (1, 4)
    assert [x.shape for x in embeddings.neighbours(points, [], 2)] == [(0, 2), (0, 2)]
    with refuses('ids'):
        embeddings.neighbours(points, 2, 2)
    with refuses('k'):
        embeddings.neighbours(points, [2], 0)
    for word in (-1, 5):
        with refuses('ids'):
            embeddings.neighbours(points, [0, word], 2)


def read_word2vec(path, binary):
    """Reads the format like distance.c of word2vec."""
    data = path.read_bytes()
    header, _, rest = data.partition(b'\n')
    size, width = map(int, header.split())
    words, vectors = [], []
    for _ in range(size):
        word, _, rest = rest.partition(b' ')
        words.append(word.decode())
        if binary:
            vectors.append(np.frombuffer(rest[: 4 * width], '<f4'))
            assert rest[4 * width :][:1] == b'\n'
            rest = rest[4 * width + 1 :]
        else:
            line, _, rest = rest.partition(b'\n')
            vectors.append(np.array([np.float32(x) for x in line.split(b' ')]))
    assert not rest
    return words, np.array(vectors)


@pytest.mark.parametrize('binary', [False, True])
def test_word2vec_files_hold_every_bit(binary, C_VxM, tmp_path):
    embeddings.write_word2vec(VOCABULARY, C_VxM, tmp_path / 'new' / 'c', binary)
    words, vectors = read_word2vec(tmp_path / 'new' / 'c', binary)
    assert words == list(WORDS) and vectors.tobytes() == C_VxM.tobytes()


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('binary', [False, True])
def test_gensim_reads_the_export_back_and_agrees(binary, C_VxM, tmp_path):
    models = pytest.importorskip('gensim.models')
    embeddings.write_word2vec(VOCABULARY, C_VxM, tmp_path / 'c', binary)
    vectors = models.KeyedVectors.load_word2vec_format(str(tmp_path / 'c'), binary=binary)
    assert vectors.index_to_key == list(WORDS) and vectors.vectors.tobytes() == C_VxM.tobytes()
    usual = Vocabulary(WORDS[9:], VOCABULARY.counts[9:])  # without vectors whose squares overflow float32
    embeddings.write_word2vec(usual, C_VxM[9:], tmp_path / 'u', binary)
    vectors = models.KeyedVectors.load_word2vec_format(str(tmp_path / 'u'), binary=binary)
    ids, cosines = embeddings.neighbours(C_VxM[9:], range(len(usual)), 5)
    for word, near, similar in zip(usual.words, ids, cosines):
        theirs = vectors.most_similar(word, topn=5)
        assert [w for w, _ in theirs] == usual.decode(near)
        np.testing.assert_allclose([c for _, c in theirs], similar, atol=1e-6)


def test_files_of_the_projector(C_VxM, tmp_path):
    maps.write_projector(VOCABULARY, C_VxM, tmp_path / 'p', {'the': 'determiner'})
    rows = [line.split('\t') for line in (tmp_path / 'p' / 'vectors.tsv').read_text().splitlines()]
    assert np.array(rows, np.float64).astype(np.float32).tobytes() == C_VxM.tobytes()
    header, rare, the, *rest = (tmp_path / 'p' / 'metadata.tsv').read_text().splitlines()
    assert (header, rare, the) == ('word\tcount\tpart of speech', '<rare>\t30\t-', 'the\t29\tdeterminer')
    assert len(rest) == len(WORDS) - 2
    config = (tmp_path / 'p' / 'projector_config.pbtxt').read_text()
    assert 'tensor_path: "vectors.tsv"' in config and 'metadata_path: "metadata.tsv"' in config


def test_what_cannot_be_written_is_one_line(C_VxM, tmp_path):
    (tmp_path / 'file').write_text('')
    with refuses('file/c'):
        embeddings.write_word2vec(VOCABULARY, C_VxM, tmp_path / 'file' / 'c', True)
    with refuses('word'):
        embeddings.write_word2vec(Vocabulary((RARE, 'a b'), (0, 1)), C_VxM[:2], tmp_path / 'c', True)
    with refuses('features'):
        maps.write_projector(VOCABULARY, C_VxM[:-1], tmp_path / 'c', {})
    assert [p.name for p in tmp_path.iterdir()] == ['file']


@pytest.mark.parametrize('method', embeddings.MAPS)
def test_a_map_keeps_groups_apart_and_can_be_repeated(method):
    pytest.importorskip('sklearn')
    rng = np.random.default_rng(0)
    centres = np.eye(3, 6) * 5
    points = np.repeat(centres, 15, 0) + rng.normal(size=(45, 6)) * 0.1
    places = embeddings.project(points.astype(np.float32), method)
    middles = places.reshape(3, 15, 2).mean(1)
    spread = np.linalg.norm(places.reshape(3, 15, 2) - middles[:, None], axis=2).max()
    assert min(np.linalg.norm(middles[i] - middles[i - 1]) for i in range(3)) > 2 * spread
    np.testing.assert_array_equal(places, embeddings.project(points.astype(np.float32), method))


def test_the_first_principal_component_is_the_widest():
    pytest.importorskip('sklearn')
    points = np.zeros((20, 3))
    points[:, 1], points[:, 2] = np.linspace(-9, 9, 20), np.tile([1, -1], 10)
    places = embeddings.project(points, 'pca')
    np.testing.assert_allclose(np.abs(places[:, 0]), np.abs(points[:, 1]), atol=0.1)


def test_two_features_are_their_own_map(tmp_path):
    points = np.random.default_rng(0).normal(size=(9, 2))
    np.testing.assert_array_equal(embeddings.project(points, 'tsne'), points)
    assert embeddings.project(points[:, :1], 'pca').shape == (9, 2)
    with refuses('method'):
        embeddings.project(points, 'umap')
    with refuses('words'):
        embeddings.project(points[:3], 'pca')
    maps.draw(points, ['$a_b', '^', '北'] * 3, ['noun', 'verb', 'noun'] * 3, tmp_path / 'map.png', 'A map', 2)
    assert (tmp_path / 'map.png').read_bytes().startswith(b'\x89PNG')


def test_a_single_feature_is_not_projected(tmp_path):
    features.draw_maps(list('abcd'), np.arange(4.0)[:, None], {}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ['plane.png']


def test_without_scikit_learn_a_map_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    with refuses('scikit-learn'):
        embeddings.project(np.eye(5), 'pca')


def test_parts_of_speech_by_browns_tags(monkeypatch):
    text = "The/at dog's/nn$ run/nn\n\nThey/ppss run/vb run/vb don't/do* ,/, Fulton/np-tl l'/fw-at 's/nn in/in"
    monkeypatch.setattr(brown, 'tagged_texts', lambda: [text, 'new/jj'])
    assert brown_tags.parts_of_speech() == {
        'the': 'determiner', 'dog': 'noun', 'run': 'verb', 'they': 'pronoun', "don't": 'verb', ',': 'other',
        'fulton': 'name', "l'": 'determiner', "'s": 'noun', 'in': 'preposition', 'new': 'adjective',
    }  # fmt: skip


# --- the command -----------------------------------------------------------------------------------------


def test_the_command(tmp_path, lines, monkeypatch):
    draw = maps.draw
    experiment.run(sentences.get_config(), tmp_path / 'run')
    loaded = experiment.load(tmp_path / 'run')
    vocabulary, model = loaded.vocabulary, loaded.model
    lines()

    def call(*arguments):
        cli.main(['features', str(tmp_path / 'run'), *map(str, arguments)])
        return lines()

    drawn = []
    monkeypatch.setattr(maps, 'draw', lambda *given: (drawn.append(given[1]), draw(*given)))
    out, _ = call(
        '--words=Like MILK', '--maps', '--export', f'--output={tmp_path / "files"}'
    )  # in lower case, like the corpus
    ids, cosines = embeddings.neighbours(np.asarray(model.params['C_VxM']), [vocabulary.ids['like']], 1)
    assert out[2].startswith(f'| like | {vocabulary.words[ids[0, 0]]} {cosines[0, 0]:.2f}, ')
    assert (tmp_path / 'files' / 'plane.png').exists()  # two features per word are used directly as the map
    assert set(drawn[0]) == {*'i like dog love coffee hate milk'.split()}
    words, vectors = read_word2vec(tmp_path / 'files' / 'features.bin', True)
    assert words == list(vocabulary.words)
    np.testing.assert_array_equal(vectors, jax.device_get(model.params['C_VxM']))
    assert {p.name for p in (tmp_path / 'files').rglob('*.*')} >= {'features.txt', 'vectors.tsv', 'metadata.tsv'}
    for unknown in ('zzz yyy', '<p>'):
        with pytest.raises(SystemExit) as stop:
            call(f'--words={unknown}')
        (line,) = lines()[1]
        assert stop.value.code == 2 and line.startswith(f"--words='{unknown}': ")
    rows, _ = call()  # without tags: the most frequent words, but no special tokens
    assert {row.split()[1] for row in rows[2:]} == {*'i like dog love coffee hate milk'.split()}
    rows, stderr = call('--words=like zzz Milk')  # an unknown word does not hide other words
    assert [row.split()[1] for row in rows[2:]] == ['like', 'milk']
    assert len(stderr) == 1 and 'zzz' in stderr[0]
    (line,), _ = call('--words=like milk', '--json')
    found = json.loads(line)['neighbours']
    assert [row['word'] for row in found] == ['like', 'milk']
    nearest = {'word': vocabulary.words[ids[0, 0]], 'cosine': pytest.approx(float(cosines[0, 0]))}
    assert found[0]['nearest'][0] == nearest


def test_without_scikit_learn_the_exports_are_written_all_the_same(tmp_path, monkeypatch, lines):
    config = sentences.get_config()
    config.model.m, config.train.epochs = 3, 1
    experiment.run(config, tmp_path / 'run')
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    monkeypatch.chdir(tmp_path)
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['features', str(tmp_path / 'run'), '--words=like', '--maps', '--export'])
    stdout, stderr = lines()
    assert stop.value.code == 2 and len(stderr) == 1 and 'pip install scikit-learn' in stderr[0]
    assert stdout[2].startswith('| like |')
    assert (tmp_path / 'features.bin').exists() and (tmp_path / 'projector' / 'vectors.tsv').exists()


def test_the_readmes_words_are_not_chosen():
    kinds = {'dog': 'noun', 'go': 'verb', 'cat': 'noun', 'red': 'adjective', ',': 'other', 'soon': 'adverb'}
    assert features.frequent_words([',', 'cat', 'soon', 'red', 'dog', 'go'], kinds) == [
        'cat',
        'dog',
        'go',
        'red',
        'soon',
    ]
    C = np.array([[9, 9], [1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    words = [',', 'cat', 'dog', 'go', 'red']
    assert re.findall(r'[\d%]+', features.describe_agreement(words, C, kinds)) == ['4', '50%', '17%']


def test_features_refuses_an_output_that_it_would_not_write():
    with refuses('--output') as caught:
        all_commands()['features'].run('features', ['runs/x', '--output=out'])
    assert '--export' in caught.value.problem and '--maps' in caught.value.problem


@pytest.mark.parametrize('map_name', ['pca.png', 'tsne.png', 'plane.png'])
def test_a_map_that_exists_is_refused_before_anything_is_read(map_name, tmp_path):
    (tmp_path / map_name).write_text('hours of work')
    words = ['runs/x', '--maps', f'--output={tmp_path}']
    with refuses('--output'):
        all_commands()['features'].run('features', words)
    with refuses('RUN'):
        all_commands()['features'].run('features', [*words, '--overwrite'])
