"""Tests mixtures of finished runs on the command line."""

import json
import re

import numpy as np
import pytest
from helpers import write_arpa

from configs import sentences
from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.kenlm.model import Model
from nplm_jax.models import mixture
from nplm_jax.ngram import static_mixture
from nplm_jax.runs import experiment, loading
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp('mix')
    for family, n in (('add_delta', 2), ('backoff', 3)):
        config = sentences.get_config()
        config = config_lib.override(config, {'model.family': family, 'model.n': n})
        experiment.run(config, root / family)
    config.corpus.count_over = 'train'
    experiment.run(config, root / 'other')
    return root


def test_the_table_is_of_the_models_and_their_mixtures(folders, tmp_path, lines):
    lines()
    pair = [f'{folders}/{name}' for name in ('add_delta', 'backoff')]
    cli.main(['mix', *pair, f'--output={tmp_path}/a.json'])
    shown = lines()[0]
    assert [line.split('|')[1].strip() for line in shown[2:]] == [
        'add_delta',
        'backoff',
        'mixed, equal',
        'mixed, learned',
        'mixed, by frequency',
    ]
    found = json.loads((tmp_path / 'a.json').read_text())
    loaded = experiment.load(folders / 'add_delta')
    settings, first = loaded.settings, loaded.model
    second = experiment.load(folders / 'backoff').model
    data = loading.load_dataset(settings)
    learned = mixture.fit([first, second], data.tokens_T, data.valid)
    assert [m['weight'] for m in found['models']] == pytest.approx(learned.weights_QxM[0].tolist())
    for split in ('valid', 'test'):
        expected = evaluate(learned, data.tokens_T, data.splits[split]).perplexity
        assert found['mixtures']['learned'][split] == pytest.approx(expected, rel=1e-6)
    assert np.isclose(sum(m['weight'] for m in found['models']), 1) and found['commit']
    assert found['command'].startswith('nplm mix ')


def test_the_perplexity_of_lines_that_are_read_separately_does_not_depend_on_their_order(tmp_path):
    held_out = ['the cat sat', 'a dog sat', 'the dog', 'a dog ran', 'the cat ran', 'a cat'] * 3
    (tmp_path / 'train.txt').write_text('the cat sat\na dog ran\nthe dog ran\na cat ran\na dog\n' * 6)
    found = []
    for name, ordered in (('mixed', held_out), ('sorted', sorted(held_out))):
        (tmp_path / name).write_text('\n'.join(ordered))
        paths = {'corpus.path': f'{tmp_path}/train.txt', 'corpus.valid_path': f'{tmp_path}/{name}'}
        changes = {**paths, 'corpus.test_path': f'{tmp_path}/{name}', 'corpus.paragraphs': 'lines', 'model.n': 2}
        runs = [tmp_path / f'{name}_{family}' for family in ('kneser_ney', 'backoff')]
        for run, family in zip(runs, ('kneser_ney', 'backoff')):
            experiment.run(config_lib.override(text_config.get_config(), {'model.family': family, **changes}), run)
        cli.main(['mix', *map(str, runs), f'--output={tmp_path}/{name}.json'])
        found.append(json.loads((tmp_path / f'{name}.json').read_text())['mixtures'])
    for scheme, perplexities in found[0].items():
        assert perplexities == pytest.approx(found[1][scheme], rel=1e-6), scheme


@pytest.fixture
def pair_of_tokenizers(tmp_path):
    """Two runs with the same vocabulary; the second splits text only at white space."""
    (tmp_path / 'text.txt').write_text('he was kind , she was not .\n\nshe was kind .\n' * 20)
    changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.min_count': 1, 'model.n': 2}
    for tokens in ('words', 'whitespace'):
        kind = {'corpus.tokens': tokens, 'model.family': 'add_delta'}
        experiment.run(config_lib.override(text_config.get_config(), changes | kind), tmp_path / tokens)
    words, others = (loading.load(tmp_path / tokens).vocabulary for tokens in ('words', 'whitespace'))
    assert words.words == others.words
    return tmp_path / 'words', tmp_path / 'whitespace'


MIXED = {
    'next': lambda pair: cli.main(['next', *pair]),
    'generate': lambda pair: cli.main(['generate', *pair]),
    'mix': lambda pair: cli.main(['mix', '--to=arpa', f'--output={pair[0]}/x', '--weights=0.5,0.5', *pair]),
    'compare': lambda pair: cli.main(['compare', *pair, f'--text={pair[0]}/config.json', '--weights=0.5,0.5']),
    'kenlm': lambda pair: Model(pair),
}


@pytest.mark.parametrize('mixed', MIXED)
@pytest.mark.parametrize('order', [1, -1])
def test_runs_of_one_vocabulary_and_several_tokenizers_are_not_mixed(mixed, order, pair_of_tokenizers, lines):
    lines()
    try:
        with pytest.raises(SystemExit):
            MIXED[mixed](list(map(str, pair_of_tokenizers[::order])))
        line = lines()[1][-1]
    except BadInput as error:
        line = str(error)
    assert '(kind, split_punctuation, match_quotes)' in line


def test_an_arpa_file_is_mixed_as_the_run_beside_it_cuts_a_sentence_whatever_their_order(pair_of_tokenizers, tmp_path):
    run, file = str(pair_of_tokenizers[0]), str(tmp_path / 'lm.arpa')
    write_arpa(run, file)
    scores = [Model(pair).score('he was kind.') for pair in ([run, file], [file, run])]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_what_cannot_be_mixed_is_one_line(folders, lines):
    for others, message in (
        ((), '^RUN='),
        (('other',), r'corpus\.\*'),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(['mix', *(f'{folders}/{name}' for name in ('add_delta', *others))])
        assert end.value.code == 2
        (line,) = lines()[1]
        assert re.search(message, line)


def test_a_model_over_other_words_is_mixed_after_the_import_that_its_refusal_names(
    folders, tmp_path, lines, nplm_command
):
    config = sentences.get_config()
    config = config_lib.override(config, {'model.family': 'backoff', 'corpus.max_vocabulary': 5})
    experiment.run(config, tmp_path / 'small')
    with pytest.raises(SystemExit):
        cli.main(['mix', str(folders / 'add_delta'), str(tmp_path / 'small')])
    advice = re.search('`(nplm import FILE --workdir=DIR --vocabulary=.*)`', lines()[1][-1])
    write_arpa(tmp_path / 'small', tmp_path / 'small.arpa')
    words = advice[1].replace('FILE', f'{tmp_path}/small.arpa').replace('DIR', f'{tmp_path}/imported').split()
    nplm_command(*words[1:])
    mixed = json.loads('\n'.join(nplm_command('mix', folders / 'add_delta', tmp_path / 'imported', '--json')[0]))
    assert [model['name'] for model in mixed['models']] == ['add_delta', 'imported']
    assert mixed['mixtures']['learned']['valid'] < 1.01 * min(model['valid'] for model in mixed['models'])
    with pytest.raises(SystemExit):
        cli.main(['mix', str(folders / 'add_delta'), f'{tmp_path}/imported', '--to=arpa', f'--output={tmp_path}/x'])
    assert re.search('imported.*arpa', lines()[1][-1])


def test_networks_whose_text_changed_are_not_mixed(tmp_path, lines):
    text, words = tmp_path / 'text', ['a b c d a c b d'] * 20
    text.write_text(' '.join(words))
    config = text_config.get_config()
    config.corpus.path, config.corpus.min_count, config.model.h = str(text), 1, 3
    config.train.batch_size, config.train.epochs = 8, 1
    for name in 'xyz':
        if name == 'z':
            text.write_text(' '.join([*words[:-1], 'a b c d a c d b']))  # the vocabulary is the same
        config.seed += 1
        experiment.run(config, tmp_path / name)
    lines()
    for first, second, changed in ('xyx', 'zxx'):  # in either order
        with pytest.raises(SystemExit) as end:
            cli.main(['mix', f'{tmp_path}/{first}', f'{tmp_path}/{second}'])
        assert end.value.code == 2
        [line] = lines()[1]
        assert line.startswith(f"RUN='{tmp_path}/{changed}': ")


def test_the_mixture_of_backoff_models_becomes_one_arpa_file(folders, tmp_path, nplm_command):
    runs = [folders / 'add_delta', folders / 'backoff']
    shown = nplm_command('mix', *runs, '--to=arpa', f'--output={tmp_path}/mixed.arpa')[0]
    assert [line.split('|')[1].strip() for line in shown[2:6]] == [
        'add_delta',
        'backoff',
        'mixed, dynamic',
        'mixed, static',
    ]
    assert shown[-1].startswith(f'{tmp_path}/mixed.arpa: {(tmp_path / "mixed.arpa").stat().st_size:,} bytes, ')
    nplm_command('import', tmp_path / 'mixed.arpa', f'--workdir={tmp_path}/one', f'--vocabulary={runs[0]}')
    loaded = loading.load(tmp_path / 'one')
    settings, imported = loaded.settings, loaded.model
    models, data = [loading.load(run).model for run in runs], loading.load_dataset(settings)
    learned = mixture.fit(models, data.tokens_T, data.valid)
    static = static_mixture.interpolate(models, learned.weights_QxM[0])
    for split, column in (('valid', 2), ('test', 3)):
        expected = evaluate(static, data.tokens_T, data.splits[split]).perplexity
        assert evaluate(imported, data.tokens_T, data.splits[split]).perplexity == pytest.approx(expected, rel=1e-5)
        assert float(shown[5].split('|')[column]) == pytest.approx(expected, rel=0.01)
    np.testing.assert_allclose(np.exp(imported.next_word(data.tokens_T[:, None])).sum(1), 1, atol=1e-6)


def test_given_weights_of_the_file_need_no_corpus(folders, tmp_path, nplm_command):
    runs = [folders / 'add_delta', folders / 'backoff']
    nplm_command('mix', *runs, f'--output={tmp_path}/weights.json')
    for name, weights in (
        ('learned', []),
        ('file', [f'--weights={tmp_path}/weights.json']),
        ('equal', ['--weights=0.5,0.5']),
    ):
        found = nplm_command('mix', *runs, '--to=arpa', f'--output={tmp_path}/{name}.arpa', '--json', *weights)[0]
        assert ('mixtures' in json.loads(found[0])) == (not weights)
    files = [(tmp_path / f'{name}.arpa').read_bytes() for name in ('learned', 'file', 'equal')]
    assert files[0] == files[1] != files[2]


def test_what_cannot_become_one_arpa_file_is_one_line(folders, tmp_path, lines):
    config = config_lib.override(sentences.get_config(), {'model.family': 'classes', 'model.classes': 3})
    experiment.run(config, tmp_path / 'classes')
    first, output = str(folders / 'add_delta'), f'--output={tmp_path}/mixed.arpa'
    lines()
    for arguments, message in (
        ([str(folders / 'backoff'), '--to=arpa'], "--output='': "),
        ([str(folders / 'backoff'), '--weights=0.5,0.5'], '--weights=.*: '),
        ([str(folders / 'backoff'), output], '--output=.*: requires --to=arpa; '),
        ([str(folders / 'backoff'), '--to=arpa', output, '--weights=0.5,0.6'], '--weights=.*: '),
        ([str(folders / 'backoff'), '--to=arpa', f'--output={tmp_path}/no/x'], '--output=.*/no/x.: .*/no '),
        ([str(tmp_path / 'classes'), '--to=arpa', output], '--to=arpa: .* classes'),
        ([str(folders / 'other'), '--to=arpa', output], r"^RUN='.*/other': .*corpus\.\*.*--weights=NUMBERS"),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(['mix', first, *arguments])
        assert end.value.code == 2
        [line] = lines()[1]
        assert re.search(message, line), line
    assert not (tmp_path / 'mixed.arpa').exists()


def test_an_imported_file_with_the_words_in_another_order_is_mixed_into_one_arpa_file(folders, tmp_path, nplm_command):
    run = folders / 'backoff'
    write_arpa(run, tmp_path / 'a.arpa')
    head, unigrams, rest = re.fullmatch(
        r'(.*?1-grams:\n)(.*?\n)(\n.*)', (tmp_path / 'a.arpa').read_text(), re.DOTALL
    ).groups()
    *words, begin = unigrams.splitlines()
    reordered = [*reversed(words), begin]
    (tmp_path / 'b.arpa').write_text(head + '\n'.join(reordered) + '\n' + rest)
    nplm_command('import', tmp_path / 'b.arpa', f'--workdir={tmp_path}/b', f'--vocabulary={run}')
    loaded = loading.load(tmp_path / 'b')
    settings, imported = loaded.settings, loaded.model
    data, original = loading.load_dataset(settings), loading.load(run).model
    np.testing.assert_allclose(imported.score(data.tokens_T), original.score(data.tokens_T), rtol=1e-5, atol=1e-6)
    shown = nplm_command('mix', folders / 'add_delta', tmp_path / 'b', '--to=arpa', f'--output={tmp_path}/c.arpa')[0]
    assert shown[-1].startswith(f'{tmp_path}/c.arpa: ')
