import contextlib
import gc
import os
import re
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from checkpoint_states import BEST, STATE, at, filled, restored_step
from helpers import numbers, refuses

from nplm_jax.runs.process import set_up_process
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import BadInput


@pytest.mark.parametrize('damage', ['truncate', 'flip', 'delete', 'progress', 'digit'])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, damage, monkeypatch):
    filled(tmp_path)
    newest = tmp_path / '3'
    if damage == 'progress':
        next((newest / 'progress').iterdir()).write_text('{"seconds": ')
    elif damage == 'digit':
        file = newest / 'progress' / 'metadata'
        file.write_text(file.read_text().replace('1.5', '2.5'))
    else:
        for file in [p for p in (newest / 'state').rglob('*') if p.is_file()]:
            data = file.read_bytes()
            if damage == 'delete':
                file.unlink()
            elif damage == 'truncate':
                file.write_bytes(data[: len(data) // 2])
            elif file.parent.name == 'd':  # the location of the arrays
                file.write_bytes(bytes(b ^ 1 for b in data))
    said = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: said.append(text % args))
    assert restored_step(tmp_path) == 2
    assert len(said) == 1 and numbers(said[0])[0] == '3' and numbers(said[0])[-1] == '2'
    assert (tmp_path / '3.damaged').is_dir()  # nothing is deleted
    store = CheckpointStore(tmp_path)
    store.save(3, *at(3), {'seconds': 1.5, 'best': float('inf')})  # its number can be used again
    store.close()
    assert restored_step(tmp_path) == 3


def test_damage_to_many_arrays_is_one_error_and_nothing_is_printed(tmp_path, capfd):
    state = {f'w{number}': np.full((10, 30), number, np.float32) for number in range(12)}
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        store.save(1, state, BEST, {})
    (file,) = (tmp_path / '1' / 'state' / 'd').iterdir()
    for size in (file.stat().st_size * share // 4 for share in (3, 2, 1, 0)):
        os.truncate(file, size)
        with contextlib.closing(CheckpointStore(tmp_path)) as store, refuses(tmp_path):
            store.restore(state, BEST)
        gc.collect()  # pytest fails for exceptions in threads or coroutines
    assert capfd.readouterr() == ('', '')


@pytest.mark.nightly
@pytest.mark.parametrize(
    'state, best, why',
    [
        ({'w': jnp.zeros((3, 2), jnp.bfloat16)}, {}, ('state.w', 'float32[3, 2]', 'bfloat16[3, 2]')),
        ({'w': jnp.zeros((2, 3))}, {}, ('state.w', 'float32[3, 2]', 'float32[2, 3]')),
        ({}, {'w': jnp.zeros((3, 1))}, ('best.w', 'float32[3, 2]', 'float32[3, 1]')),
        ({'step': jnp.zeros(1, jnp.int32)}, {}, ('state.step', 'int32[]', 'int32[1]')),
        ({'n': jnp.zeros(1)}, {}, ('state.n', 'none', 'float32[1]')),
        ({'w': None}, {}, ('state.w', 'float32[3, 2]', 'none')),
    ],
)
def test_checkpoints_of_another_shape_or_type_stop_and_stay(tmp_path, state, best, why):
    filled(tmp_path)
    before = sorted(tmp_path.rglob('*'))
    store = CheckpointStore(tmp_path)
    array, saved, wanted = map(re.escape, why)
    with pytest.raises(BadInput, match=rf'\b3\b.*\b{array}\b.* {saved} .* {wanted}'):
        store.restore({**STATE, **state}, {**BEST, **best})
    store.close()
    assert sorted(tmp_path.rglob('*')) == before
    assert restored_step(tmp_path) == 3


@pytest.mark.parametrize('error', [MemoryError, PermissionError])
def test_a_checkpoint_that_could_not_be_read_is_not_called_damaged(tmp_path, error, monkeypatch):
    store = CheckpointStore(filled(tmp_path))
    monkeypatch.setattr(store, '_read', lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(error):
        store.restore(*at(0))
    assert not list(tmp_path.glob('*.damaged'))


def test_the_same_update_may_be_damaged_twice(tmp_path):
    for _ in range(2):
        store = CheckpointStore(tmp_path)
        store.save(2, *at(2), {'seconds': 1.0, 'best': float('inf')})
        store.save(3, *at(3), {'seconds': 1.5, 'best': float('inf')})
        store.close()
        next((tmp_path / '3' / 'progress').iterdir()).write_text('{"seconds": ')
        assert restored_step(tmp_path) == 2
    names = {p.name.partition('.damaged.')[0] for p in tmp_path.iterdir()}
    assert names == {'2', '3.damaged', '3'} and len(list(tmp_path.iterdir())) == 3


def test_a_read_only_store_changes_nothing(tmp_path):
    filled(tmp_path)
    next((tmp_path / '3' / 'progress').iterdir()).write_text('{"seconds": ')
    before = sorted(tmp_path.rglob('*'))
    store = CheckpointStore(tmp_path, read_only=True)
    assert float(store.restore_best(BEST)[0]['w'][0, 0]) == -2
    store.close()
    assert sorted(tmp_path.rglob('*')) == before


def test_a_save_that_fails_says_so_and_leaves_the_earlier_ones(tmp_path, monkeypatch):
    store = CheckpointStore(filled(tmp_path))
    monkeypatch.setattr(store._manager, 'save', lambda *a, **k: (_ for _ in ()).throw(ValueError('No space left')))
    with pytest.raises(OSError, match=FAILED):
        store.save(4, *at(4), {})
    store.close()
    assert restored_step(tmp_path) == 3


FAILED = r'\b4\b.*No space left'  # the update of the checkpoint, and the reason


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Returns a store whose save of update 4 failed in the background; the disk has free space again."""
    store, failed = CheckpointStore(filled(tmp_path)), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(os, 'rename', lambda *_: failed.set() or (_ for _ in ()).throw(OSError(28, 'No space left')))
        store.save(4, *at(4), {})
        assert failed.wait(60)
    return store


def test_after_a_save_that_failed_in_the_background_the_next_is_written_and_says_so(tmp_path, failing):
    with pytest.raises(OSError, match=FAILED):
        failing.save(5, *at(5), {'seconds': 2.5, 'best': float('inf')})
    failing.close()
    assert restored_step(tmp_path) == 5


class FailedManager:
    """An Orbax manager that raises the error of an earlier save in every call."""

    def __getattr__(self, name):
        def fail(*_, **__):
            raise ValueError('RESOURCE_EXHAUSTED: No space left on device')

        return fail


def test_an_error_is_raised_once_and_not_again_by_the_next_save(tmp_path):
    store = CheckpointStore(filled(tmp_path))
    store.save(4, *at(4), {'seconds': 2.0, 'best': float('inf')})
    store.wait()
    store._manager = FailedManager()
    with pytest.raises(OSError, match='No space left on device$'):
        store.wait()
    store.save(5, *at(5), {'seconds': 2.5, 'best': float('inf')})
    store.close()
    assert restored_step(tmp_path) == 5


def test_a_check_says_that_a_save_failed_without_another(failing):
    with pytest.raises(OSError, match=FAILED):
        while True:  # until Orbax's thread has ended
            failing.check()


def test_a_save_that_fails_in_the_background_is_one_line_of_the_next_call(tmp_path, monkeypatch, capfd):
    set_up_process()
    store = CheckpointStore(filled(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, 'rename', lambda *_: (_ for _ in ()).throw(OSError(28, 'No space left on device')))
        for wait in (store.latest_step, store.close):
            store.save(4, *at(4), {})
            with pytest.raises(OSError, match=FAILED) as raised:
                wait()
            assert len(str(raised.value).splitlines()) == 1
    assert capfd.readouterr() == ('', '')
    assert restored_step(tmp_path) == 3
