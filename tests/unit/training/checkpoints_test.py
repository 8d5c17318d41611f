import os
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from absl import logging
from checkpoint_states import BEST, at, filled, restored_step
from helpers import refuses

from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import Resumable


def test_the_newest_comes_back_and_old_ones_go(tmp_path):
    assert restored_step(tmp_path / 'none') is None
    folder = tmp_path / 'new' / 'c'
    assert restored_step(filled(folder, (1, 2, 3, 4, 5))) == 5
    assert sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) == [3, 4, 5]


def test_a_relative_folder_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert restored_step(filled(tmp_path.relative_to(tmp_path) / 'c')) == 3


def test_what_a_killed_save_leaves_is_removed(tmp_path):
    shutil.copytree(filled(tmp_path) / '3', tmp_path / '4.orbax-checkpoint-tmp')
    (tmp_path / '4.orbax-checkpoint-tmp' / 'commit_success.txt').unlink()
    CheckpointStore(tmp_path, read_only=True).close()
    assert (tmp_path / '4.orbax-checkpoint-tmp').is_dir()
    (tmp_path / '4.orbax-checkpoint-tmp-1').write_text('a file')
    assert restored_step(tmp_path) == 3
    assert {p.name for p in tmp_path.iterdir()} == {'1', '2', '3'}


def test_a_store_that_is_read_logs_nothing(tmp_path, monkeypatch, caplog):
    filled(tmp_path)
    monkeypatch.setattr(logging.get_absl_logger(), 'filters', [])  # the filters of a command
    monkeypatch.setattr(logging.get_absl_logger(), 'propagate', True)
    caplog.clear()
    CheckpointStore(tmp_path, read_only=True).close()
    assert not caplog.messages


def test_a_save_returns_before_the_checkpoint_is_complete_and_its_arrays_may_be_donated(tmp_path, monkeypatch):
    may_commit, rename = threading.Event(), os.rename
    monkeypatch.setattr(os, 'rename', lambda *args: may_commit.wait(60) and rename(*args))
    store, (state, best) = CheckpointStore(tmp_path), at(1)
    store.save(1, state, best, {'seconds': 0.5, 'best': float('inf')})
    assert not (tmp_path / '1').exists()
    jax.block_until_ready(jax.jit(lambda x: x + 7, donate_argnums=0)(state['w']))
    may_commit.set()
    assert store.latest_step() == 1 and (tmp_path / '1').is_dir()
    store.close()
    assert restored_step(tmp_path) == 1


def test_an_optimizer_may_keep_bfloat16(tmp_path):
    state = {'mu': np.arange(6.0).astype(jnp.bfloat16).reshape(3, 2), 'count': np.zeros((), np.int32)}
    store = CheckpointStore(tmp_path)
    store.save(1, state, BEST, {})
    restored, _, _ = store.restore(state, BEST)
    store.close()
    assert restored['mu'].dtype == jnp.bfloat16
    np.testing.assert_array_equal(restored['mu'].astype(np.float32), [[0, 1], [2, 3], [4, 5]])


def test_saving_below_the_newest_is_an_error_and_the_same_again_is_not(tmp_path):
    store = CheckpointStore(filled(tmp_path))
    store.save(3, *at(3), {})
    with pytest.raises(RuntimeError):
        store.save(2, *at(2), {})
    store.close()


def test_on_a_full_disk_no_save_begins(tmp_path, monkeypatch):
    store = CheckpointStore(filled(tmp_path))
    status = os.statvfs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, 'statvfs', lambda _: os.statvfs_result((*status[:3], 1, *status[4:])))
        with pytest.raises(Resumable, match=r'\b4\b.*No space left on device'):
            store.save(4, *at(4), {})
    store.save(5, *at(5), {'seconds': 2.5, 'best': float('inf')})
    store.close()
    assert restored_step(tmp_path) == 5


def test_a_checkpoint_records_the_origin_of_each_process_that_trained_it(tmp_path):
    for step, release in enumerate(('0.10.2', '0.12.0', '0.12.0'), start=1):
        store = CheckpointStore(tmp_path, origin={'versions': {'jaxlib': release}})
        store.restore(*at(0))
        store.save(step, *at(step), {'seconds': step / 2, 'best': float('inf')})
        store.close()
    assert [origin['versions']['jaxlib'] for origin in store.origins] == ['0.10.2', '0.12.0']
    assert restored_step(tmp_path) == 3


def test_a_checkpoint_that_training_deletes_while_it_is_read_is_replaced_by_a_newer_one(tmp_path, monkeypatch):
    store = CheckpointStore(filled(tmp_path), read_only=True)
    read, steps = store._read, []

    def train_on(step, examples):
        steps.append(step)
        if step == 3:
            for old in '123':
                shutil.rmtree(tmp_path / old)
            filled(tmp_path, (4,))
        return read(step, examples)

    monkeypatch.setattr(store, '_read', train_on)
    assert float(store.restore_best(BEST)[0]['w'][0, 0]) == -4 and steps == [3, 4]
    store.close()


def test_the_best_of_an_empty_folder_is_an_error(tmp_path):
    store = CheckpointStore(tmp_path)
    with refuses(tmp_path):
        store.restore_best(BEST)
    store.close()


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_the_coming_interface_of_orbax_reads_the_same_arrays(tmp_path):
    v1 = getattr(ocp, 'v1', None) or pytest.skip('this Orbax has no v1')
    read = v1.load_checkpointables(filled(tmp_path / 'c') / '3')
    state, best = at(3)
    np.testing.assert_array_equal(read['state']['w'], state['w'])
    np.testing.assert_array_equal(read['best']['w'], best['w'])
    assert int(read['state']['step']) == 3 and read['state']['n'] is None and read['progress']['seconds'] == 1.5
