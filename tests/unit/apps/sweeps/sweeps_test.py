import csv
import json
import re

import pytest
from helpers import launch, one_line, refuses
from ml_collections import ConfigDict
from sweep_studies import SWEEP

from configs import brown, sentences
from configs import text as text_config
from nplm_jax.apps.sweeps import sweep_points, sweeps, together
from nplm_jax.apps.sweeps.together import group_compatible
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import KINDS
from nplm_jax.reporting import catalog
from nplm_jax.runs import run_names, workdir
from nplm_jax.runs.command_line import load_config
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import BadInput


@pytest.fixture
def study(tmp_path):
    (tmp_path / 'study.py').write_text(SWEEP)
    return tmp_path / 'study.py'


def test_every_point_of_the_brown_sweep_applies():
    points = [sweep_points.apply(brown.get_config('large'), overrides) for overrides in brown.sweep()]
    assert len({p.name for p in points}) == 16
    assert len({p.settings.model for p in points}) == 16
    assert points[0].name == 'n_3__m_30__h_50__direct_False'


@pytest.mark.parametrize(
    'overrides,message',
    [
        ({'model.hidden': 3}, '--sweep: model.hidden: is not a config key'),
        ({'model.h.x': 3}, '--sweep: model.h.x: is not a config key'),
        ({'model.h': 'many'}, "--sweep: model.h='many': must be an integer"),
        ({'model.n': 1}, '--sweep: model.n=1: must be at least 2'),
        ({'model.m': 3, 'model.n': 1}, '--sweep: model.m=3,model.n=1: model.n=1: must be at least 2'),
        ({'model.h': 0}, '--sweep: model.h=0: '),
    ],
)
def test_a_stale_point_is_refused(overrides, message):
    with refuses('--sweep'):
        sweep_points.apply(sentences.get_config(), overrides)


def test_a_stale_point_stops_the_sweep_before_its_first_run(study, tmp_path):
    study.write_text(SWEEP + "    yield {'model.hidden': 3}\n")
    done = launch(f'--config={study}', '--sweep', f'--workdir={tmp_path / "runs"}')
    assert done.returncode == 2 and done.stderr.startswith('--sweep: model.hidden: ')
    assert done.stderr.count('\n') == 1
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize(
    'body',
    [
        'return []',
        'raise RuntimeError("boom")',
        'yield {1: 2}',
        'yield {"name": "table.md"}',
        'yield 3',
        'yield {"seed": 2}\n    yield {"seed": 2}',
    ],
)
def test_a_sweep_without_valid_points_is_refused(tmp_path, body):
    (tmp_path / 'study.py').write_text(f'def sweep():\n    {body}\n')
    with refuses('--sweep'):
        sweep_points.load_points(str(tmp_path / 'study.py'), sentences.get_config())


def test_a_typed_key_that_all_points_set_is_refused(tmp_path):
    path = tmp_path / 'study.py'
    path.write_text("def sweep():\n    yield {'seed': 2}\n    yield {'seed': 3, 'model.h': 7}\n")
    assert len(sweep_points.load_points(str(path), sentences.get_config(), ['model.h', 'name']).possible) == 2
    with refuses('--config.seed'):
        sweep_points.load_points(str(path), sentences.get_config(), ['seed'])


def test_names_of_points():
    assert run_names.run_name({'model.h': 3, 'corpus.path': '/x/y', 'seed': 1}) == 'h_3__path_y__seed_1'
    alike = {'train.words': 1, 'eval.words': 2}
    assert run_names.run_name(alike) == 'train.words_1__eval.words_2'
    assert len(run_names.run_name({f'a.b{i}': i for i in range(99)})) == 16
    assert sweep_points.apply(sentences.get_config(), {}).name == 'sentences'


def test_a_file_without_a_sweep(tmp_path):
    done = launch('--config=configs/sentences.py', '--sweep', f'--workdir={tmp_path / "runs"}')
    line = one_line(done.stderr, '--sweep')
    assert done.returncode == 2 and 'configs/sentences.py' in line and '--grid=' in line


def test_a_grid_has_a_point_for_each_combination_of_values_of_the_keys_types():
    axes = ['model.direct=true,False', 'model.m=3,4', 'optimizer.decay=0']
    points, _ = sweep_points.grid_points(axes, sentences.get_config())
    values = [tuple(point.overrides[key] for key in ('model.direct', 'model.m', 'optimizer.decay')) for point in points]
    assert values == [(True, 3, 0.0), (True, 4, 0.0), (False, 3, 0.0), (False, 4, 0.0)]
    assert points[0].name == 'direct_True__m_3__decay_0.0' and points[2].settings.model.direct is False


def test_an_impossible_point_of_a_grid_is_left_out():
    points, impossible = sweep_points.grid_points(['model.h=0,5', 'model.direct=False,True'], sentences.get_config())
    assert [point.name for point in points] == ['h_0__direct_True', 'h_5__direct_False', 'h_5__direct_True']
    assert list(impossible) == ['h_0__direct_False'] and impossible['h_0__direct_False'].startswith('model.h=0: must')


@pytest.mark.parametrize(
    'axes,problem',
    [
        (['model.h=0', 'model.direct=False'], 'model.h=0,model.direct=False: model.h=0: must be 1 or more'),
        (['model.n=1,0'], 'model.n=1: must be at least 2'),
    ],
)
def test_a_grid_without_a_possible_point_is_refused(axes, problem):
    with pytest.raises(BadInput) as caught:
        sweep_points.grid_points(axes, sentences.get_config())
    assert caught.value.key == '--grid' and caught.value.problem.startswith(problem)


def test_a_sweep_names_an_impossible_point_and_runs_the_others(tmp_path):
    flags = ['--config=configs/sentences.py:add_delta', f'--workdir={tmp_path / "runs"}']
    done = launch(*flags, '--grid=model.delta=-1,0.1,0.2')
    assert done.returncode == 0, done.stderr
    assert 'model.delta=-1.0: ' in one_line(done.stderr, 'delta_-1.0')
    rows = [line.split('|')[1:3] for line in (tmp_path / 'runs' / 'table.md').read_text().splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ['delta_0.1', 'delta_0.2', 'delta_-1.0']
    assert rows[2][1].strip() == 'impossible' and len(list((tmp_path / 'runs').glob('*/results.json'))) == 2


def test_a_sweep_writes_a_csv_with_a_row_for_each_point(bigrams, tmp_path):
    points = bigrams(0.1, 0.2, 0.3)
    sweeps.run(points[:1], tmp_path / 'runs', '')
    sweeps.write_table(points, tmp_path / 'runs', {points[1].name: 'diverged', 'delta_-1.0': 'impossible'})
    with (tmp_path / 'runs' / 'table.csv').open(newline='') as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ['point', 'model.delta', 'train', 'valid', 'test', 'seconds', 'state']
    found = [(row['point'], row['model.delta'], row['state']) for row in rows]
    assert found == [
        ('delta_0.1', '0.1', 'finished'),
        ('delta_0.2', '0.2', 'diverged'),
        ('delta_0.3', '0.3', 'missing'),
        ('delta_-1.0', '', 'impossible'),
    ]
    results = json.loads((tmp_path / 'runs' / 'delta_0.1' / 'results.json').read_text())
    assert {part: float(rows[0][part]) for part in results['perplexity']} == results['perplexity']
    assert float(rows[0]['seconds']) == results['seconds']
    assert all(row[name] == '' for row in rows[1:] for name in ('train', 'valid', 'test', 'seconds'))


def test_points_that_were_trained_in_other_precisions_are_told(bigrams, tmp_path):
    points = bigrams(0.1, 0.2)
    assert 'float' not in sweeps.run(points, tmp_path / 'runs', '')
    for precision in ('float32', 'bfloat16'):
        path = tmp_path / 'runs' / points[precision == 'float32'].name / 'results.json'
        path.write_text(json.dumps(json.loads(path.read_text()) | {'precision': {'output.precision': precision}}))
        told = 'bfloat16 or float32' in sweeps.write_table(points, tmp_path / 'runs', {})
        assert told == (precision == 'bfloat16')


def test_a_sweep_prints_each_note_once(bigrams, tmp_path, lines):
    (tmp_path / 'text').write_text('a b c d a c b d ' * 20 + 'e f')
    sweeps.run(bigrams(0.1, 0.2, 0.3), tmp_path / 'runs', '')
    out, _ = lines()
    assert sum(line.startswith('<rare> ') for line in out) == 1
    assert sum(line.startswith('| perplexity') for line in out) == 3


@pytest.mark.parametrize(
    'axis,names',
    [
        ('corpus.path=a/x.txt,b/x.txt', r'path_x\.txt-\w{6}'),
        ('corpus.path=a x,a=x,a/b__x', r'path_[abx_]+-\w{6}'),
        ('corpus.path=小说.txt,红楼.txt', r'path__\.txt-\w{6}'),
        (f'corpus.path={"y" * 90},{"y" * 91}', r'path_y{40}-\w{6}'),
        ('seed=1,2', r'seed_\d'),
    ],
)
def test_the_names_of_different_points_differ_and_are_plain(axis, names):
    points, _ = sweep_points.grid_points([axis], text_config.get_config())
    made = [point.name for point in points]
    assert len(set(made)) == axis.count(',') + 1
    assert all(re.fullmatch(names, name) and re.fullmatch('[A-Za-z0-9_.-]+', name) for name in made)


@pytest.fixture
def bigrams(tmp_path):
    """Returns the points of a sweep over model.delta on a text."""
    config = text_config.get_config()
    config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2, 'corpus.min_count': 1})
    config.corpus.path = str(tmp_path / 'text')
    (tmp_path / 'text').write_text('a b c d a c b d ' * 20)
    return lambda *deltas: [sweep_points.apply(config, {'model.delta': delta}) for delta in deltas]


def test_a_csv_has_the_booleans_of_base_r(tmp_path):
    config = sentences.get_config()
    points = [sweep_points.apply(config, {'model.direct': direct, 'seed': 2}) for direct in (True, False)]
    sweeps.write_table(points, tmp_path, {})
    with (tmp_path / 'table.csv').open(newline='') as file:
        assert [row['model.direct'] for row in csv.DictReader(file)] == ['TRUE', 'FALSE']


def test_a_sweep_whose_text_has_changed_is_refused_before_a_point_runs(bigrams, tmp_path):
    sweeps.run(bigrams(0.1, 0.2), tmp_path / 'runs', '')
    table = (tmp_path / 'runs' / 'table.md').read_text()
    (tmp_path / 'text').write_text('a c b d a b c d ' * 20)
    with refuses('--workdir') as caught:
        sweeps.run(bigrams(0.3, 0.1, 0.2), tmp_path / 'runs', '')
    assert (caught.value.key, caught.value.value) == ('--workdir', f'{tmp_path}/runs')
    assert not (tmp_path / 'runs' / 'delta_0.3').exists() and (tmp_path / 'runs' / 'table.md').read_text() == table


def test_jobs_of_a_sweep_whose_text_has_changed_do_not_start(bigrams, tmp_path):
    sweeps.run(bigrams(0.1), tmp_path / 'runs', '')
    (tmp_path / 'text').write_text('a c b d a b c d ' * 20)
    keys = {'model.n': 2, 'corpus.min_count': 1, 'corpus.path': tmp_path / 'text'}
    flags = [f'--config.{key}={value}' for key, value in keys.items()]
    grid = [f'--workdir={tmp_path}/runs', '--launcher=local', '--grid=model.delta=0.3,0.1']
    done = launch('--config=configs/text.py:add_delta', *flags, *grid)
    assert done.returncode == 2 and 'delta_0.1: ' in done.stderr, done.stderr
    assert not (tmp_path / 'runs' / 'delta_0.3').exists()


def test_points_of_other_tokens_have_other_texts(bigrams, tmp_path):
    (tmp_path / 'text').write_text("a b, c don't d a " * 20)
    (point,) = bigrams(0.1)
    config = ConfigDict(config_lib.to_dict(point.settings))
    points = [sweep_points.apply(config, {'corpus.tokens': name}) for name in ('words', 'whitespace')]
    for _ in range(2):
        assert 'not comparable' in sweeps.run(points, tmp_path / 'runs', '')


def test_count_based_models_train_alone_in_a_vectorized_sweep(bigrams, tmp_path):
    assert group_compatible(point.settings for point in bigrams(0.1, 0.1)) == [[0], [1]]


def test_points_of_other_words_have_no_best(bigrams, tmp_path):
    (tmp_path / 'text').write_text('a b c d a c b e ' * 20 + 'f a ')
    (point,) = bigrams(0.1)
    config = ConfigDict(config_lib.to_dict(point.settings))
    points = [sweep_points.apply(config, {'corpus.min_count': count}) for count in (1, 25)]
    *table, line, figure = sweeps.run(points, tmp_path / 'runs', '').splitlines()
    assert len(table) == 4 and not any('best' in row for row in table) and figure.startswith('Figure: ')
    assert not line.startswith('Best')


def test_points_that_were_evaluated_on_other_words_have_no_best(bigrams, tmp_path):
    points = bigrams(0.1, 0.2)
    assert 'not comparable' not in sweeps.run(points, tmp_path / 'runs', '')
    path = tmp_path / 'runs' / points[0].name / 'results.json'
    sample = {'words': {'valid': 16, 'test': 16}, 'standard_error': {'valid': 1.0, 'test': 1.0}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {'sample': sample}))
    assert 'not comparable' in sweeps.write_table(points, tmp_path / 'runs', {})


def test_a_table_over_two_texts_is_refused(bigrams, tmp_path):
    for delta, text in ((0.1, 'a b c d a c b d '), (0.2, 'a c b d a b c d ')):
        (tmp_path / 'text').write_text(text * 20)
        sweeps.run(bigrams(delta), tmp_path / 'runs', '')
    with refuses('--workdir'):
        sweeps.write_table(bigrams(0.1, 0.2), tmp_path / 'runs', {})


def test_a_finished_sweep_whose_text_is_gone_shows_its_table(bigrams, tmp_path, lines):
    table = sweeps.run(bigrams(0.1, 0.2), tmp_path / 'runs', '')
    (tmp_path / 'text').unlink()
    assert sweeps.run(bigrams(0.1, 0.2), tmp_path / 'runs', '') == table
    assert str(tmp_path) in lines()[1][-1]


@pytest.mark.parametrize(
    ('config', 'overrides'),
    [
        ('text:lstm,adam', {'optimizer.name': 'sgd'}),
        ('text:lstm,adam', {'optimizer.name': 'adam', 'model.layers': 2}),
        ('text:one_minute', {'model.family': 'gru', 'output.kind': 'full'}),
        ('brown:lstm', {'model.family': 'kneser_ney', 'model.n': 4}),
        ('brown:lstm', {'model.family': 'transformer'}),
        ('brown:mlp9,lstm', {'model.family': 'gru', 'model.layers': 2}),
        ('brown:mlp9', {'optimizer.name': 'sgd', 'output.kind': 'nce', 'output.samples': 9}),
        ('brown:quick', {'optimizer.name': 'optax:lion', 'optimizer.options.b1': 0.8}),
        ('text:optax:lion', {'corpus.tokens': 'characters', 'optimizer.name': 'paper', 'name': 'mine'}),
        ('brown:mlp9', {'optimizer.name': 'rowwise_adam', 'model.family': 'lstm'}),
        ('text', {'corpus.name': 'sentences', 'optimizer.name': 'adam'}),
        ('text', {'model.h': 7}),
    ],
)
def test_a_job_has_the_config_of_its_point(config, overrides):
    flags = {'seed': 3}
    sweep = config_lib.override(load_config(config), flags)
    point = sweep_points.apply(sweep, overrides)
    named, changes = sweep_points.job_config(config, flags, sweep, point)
    assert not changes.keys() & KINDS.keys()
    made = load_config(named)
    made.update_from_flattened_dict(changes)
    assert config_lib.to_flat(load_settings(made)) == config_lib.to_flat(point.settings)


def test_a_config_file_that_takes_no_components_is_refused_for_jobs(study):
    config = sentences.get_config()
    point = sweep_points.apply(config, {'model.family': 'add_delta', 'model.n': 2})
    with refuses('--launcher'):
        sweep_points.job_config(str(study), {}, config, point)


@pytest.mark.parametrize('axis', ['model.family=lstm,gru', 'optimizer.name=adam', 'corpus.name=text'])
def test_a_grid_of_components_is_refused(axis):
    with refuses('--grid') as caught:
        sweep_points.grid_points(['model.n=3', axis], text_config.get_config('kneser_ney'))
    assert caught.value.value == axis and '--configs' in caught.value.problem


def test_a_grid_reads_values_as_their_keys_have_them():
    points = sweep_points.grid_points(['model.prune=0'], text_config.get_config('modified_kneser_ney'))
    assert points.possible[0].settings.model.prune == '0'


def test_a_grid_takes_no_teachers():
    with refuses('--grid'):
        sweep_points.grid_points(['output.teacher=a,b'], text_config.get_config())


def test_finished_runs_do_not_count_as_trained_together(tmp_path, monkeypatch):
    numbers = []

    def open_session(settings, folder, command, corpus, num_batched):
        numbers.append(num_batched)
        raise BadInput('--workdir', 'is full')

    monkeypatch.setattr(together, 'open_session', open_session)
    monkeypatch.setattr(catalog, 'finished', lambda folder: {} if folder.name == 'a' else None)
    together.run_many([load_settings(sentences.get_config())] * 3, [tmp_path / name for name in 'abc'], '')
    assert numbers == [2, 2, 2]


def test_a_point_that_another_process_trains_is_not_marked_as_refused(tmp_path, monkeypatch):
    in_use = workdir.FolderInUse('--workdir', 'is in use by another process')
    monkeypatch.setattr(sweeps, 'run_many', lambda *_: [in_use])
    points = [sweep_points.apply(sentences.get_config(), {'seed': seed}) for seed in (1, 2)]
    table = sweeps.run(points, tmp_path, '')
    assert table.count('missing') == 2 and 'refused' not in table
