"""Saving and restoring by Orbax; nothing else knows Orbax."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import pathlib
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from nplm_jax.utils.errors import BadInput, first_line

Tree = TypeVar('Tree')
Best = TypeVar('Best')
Result = TypeVar('Result')


class CheckpointStore:
    """The checkpoints of one run: training state, best parameters and progress, by update number.

    A save is synchronous and atomic: a process killed within one leaves the earlier checkpoints whole. Each
    carries a checksum, so that a damaged one is known and the one before it is used. Arrays are saved whole:
    nothing says over which devices they lay, and with several processes only the first one saves.
    Read-only, nothing in the folder is touched, so that a run under way can be looked at.
    """

    def __init__(self, folder: pathlib.Path, keep: int = 3, read_only: bool = False):
        folder = folder.absolute()  # Orbax fails on a relative path, and only in a background thread
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._read_only = read_only
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.FATAL)  # it warns that read-only is read-only, and prints what it cannot read
        options = ocp.CheckpointManagerOptions(
            max_to_keep=None if read_only else keep,
            create=False,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
            enable_async_checkpointing=False,
            multiprocessing_options=_alone(),
        )
        self._manager = ocp.CheckpointManager(folder, item_names=('state', 'best', 'progress'), options=options)
        logging.set_verbosity(verbosity)

    def latest_step(self) -> int | None:
        """The newest checkpoint's update number, None when there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Writes a checkpoint of update `step`, unless that one is there already.

        The first one of a folder is read back at once: a path or a disk that it cannot be read from must not show
        only when the run is over.
        Raises: RuntimeError when Orbax declines (it never overwrites a later step); OSError when the disk does, or
        when what was written cannot be read back.
        """
        if (newest := self.latest_step()) == step:
            return
        state, best = jax.tree.map(np.asarray, (state, best))
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            best=ocp.args.StandardSave(best),
            progress=ocp.args.JsonSave({**progress, 'checksum': _checksum((state, best), progress)}),
        )
        saved = _quietly(lambda: self._manager.save(step, args=items))
        if isinstance(saved, str):
            cause = 'No space left on device' if saved.startswith('RESOURCE_EXHAUSTED') else saved
            raise OSError(f'the checkpoint of update {step:,} could not be written: {cause}')
        if not saved:
            raise RuntimeError(f'no checkpoint was written at update {step}: the newest is {newest}')
        if newest is None and isinstance(read := _quietly(lambda: self._restore(step, state, best)), str):
            raise OSError(f'{self._manager.directory}: the checkpoint of update {step:,} cannot be read back: {read}')

    def restore(self, state: Tree, best: Best, before: int | None = None) -> tuple[Tree, Best, dict[str, Any]] | None:
        """The newest undamaged checkpoint, shaped like the examples given; None when there is none at all.

        before: an update, to leave out what was saved at it or later.

        Damaged ones are named in a warning and, unless the store is read-only, set aside as NUMBER.damaged, since
        Orbax would refuse to save below them.
        Raises: BadInput when there are checkpoints and none can be read; they are left as they are.
        """
        damaged: dict[int, str] = {}
        for step in sorted((s for s in self._manager.all_steps() if before is None or s < before), reverse=True):
            restored = _quietly(functools.partial(self._restore, step, state, best))
            if not isinstance(restored, str):
                self._set_aside(damaged, step)
                return *jax.tree.map(jnp.asarray, restored[:2]), restored[2]
            damaged[step] = restored
        if damaged:
            raise BadInput(
                f'{self._manager.directory}: no checkpoint can be read (of update {max(damaged)}: '
                f'{damaged[max(damaged)]}); move the folder away to start again'
            )
        return None

    def _set_aside(self, damaged: dict[int, str], used: int) -> None:
        folder = pathlib.Path(self._manager.directory)
        for step, reason in damaged.items():
            logging.warning('checkpoint %d is damaged (%s); going back to %d', step, reason, used)
            if not self._read_only:
                tried = itertools.count(1)
                target = folder / f'{step}.damaged'
                while target.exists():
                    target = folder / f'{step}.damaged.{next(tried)}'
                (folder / str(step)).rename(target)
        if damaged:
            self._manager.reload()

    def _restore(self, step: int, state: Tree, best: Best) -> tuple[Tree, Best, dict[str, Any]]:
        for item, example in {'state': state, 'best': best}.items():
            self._check_arrays(pathlib.Path(self._manager.directory) / str(step) / item, example)
        wanted = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), (state, best))
        found = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(wanted[0]),
                best=ocp.args.StandardRestore(wanted[1]),
                progress=ocp.args.JsonRestore(),
            ),
        )
        progress = dict(found.progress)
        written = progress.pop('checksum', None)  # of the arrays alone in older ones
        if written not in (_checksum((found.state, found.best), p) for p in (progress, None)):
            raise ValueError('its checksum differs')
        return found.state, found.best, progress

    def _check_arrays(self, folder: pathlib.Path, example: Any) -> None:
        """Raises: ValueError naming the first array that is of another shape or type, before any is read.

        Orbax would cast, cut or pad it to the example's without a word.
        """
        there = ocp.tree.to_flat_dict(ocp.StandardCheckpointHandler().metadata(folder).tree, sep='.')
        wanted = ocp.tree.to_flat_dict(example, sep='.')
        for name in sorted(there.keys() | wanted.keys()):
            found, asked = (
                f'{tree[name].dtype}{list(tree[name].shape)}' if name in tree else 'none' for tree in (there, wanted)
            )
            if found != asked:
                raise ValueError(f'{folder.name}.{name}: {found} there, {asked} by the config')

    def restore_best(self, state: Any, best: Best) -> Best:
        """The best parameters of the newest checkpoint. Raises: BadInput when no checkpoint can be read."""
        if (restored := self.restore(state, best)) is None:
            raise BadInput(f'{self._manager.directory}: holds no checkpoint')
        return restored[1]

    def close(self) -> None:
        """Frees Orbax's threads."""
        self._manager.close()


def _alone() -> ocp.options.MultiprocessingOptions:
    """Orbax waits for all processes unless it is told that this one is the only one that saves."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    me = jax.process_index()
    return ocp.options.MultiprocessingOptions(me, {me}, 'alone')


def _quietly(call: Callable[[], Result]) -> Result | str:
    """What the call returns, or in one line why it failed; Orbax and Python add nothing to that.

    Orbax prints the files that it cannot read, whole, and abandons threads and coroutines when a disk fails it;
    Python prints a traceback for each of those, for the latter when it collects them.
    """
    earlier, hooks = threading.enumerate(), (sys.unraisablehook, sys.excepthook, threading.excepthook)
    sys.unraisablehook = lambda what: None if issubclass(what.exc_type, Exception) else hooks[0](what)
    sys.excepthook = threading.excepthook = lambda *_: None
    logging.logging.disable()
    try:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (whatever a full disk or a damaged file makes Orbax raise)
            reason = first_line(error)[:200]
        for thread in threading.enumerate():
            if thread not in earlier:
                threading.Thread.join(thread, timeout=10)  # Orbax's own raises again
        gc.collect()
        time.sleep(0.5)  # tensorstore's threads, which are not Python's, end a moment later
        return reason
    finally:
        sys.unraisablehook, sys.excepthook, threading.excepthook = hooks
        logging.logging.disable(logging.logging.NOTSET)


def _checksum(tree: Any, progress: dict[str, Any] | None) -> int:
    """CRC-32 over every array's path, type, shape and bytes and the progress: a cast or a flipped bit changes it."""
    total = zlib.crc32(json.dumps(progress, sort_keys=True).encode()) if progress is not None else 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        total = zlib.crc32(f'{jax.tree_util.keystr(path)}{array.dtype}{array.shape}'.encode(), total)
        total = zlib.crc32(array.data, total)
    return total
