"""Checkpoints by Orbax; no other module imports Orbax."""

import functools
import gc
import itertools
import json
import logging as python_logging
import pathlib
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from nplm_jax.utils.errors import BadInput, first_line

Tree = TypeVar('Tree')
Best = TypeVar('Best')
Result = TypeVar('Result')
CHECKSUM = 'crc32'
OLD_CHECKSUM = 'checksum'  # of earlier versions, over other names of the arrays: such checkpoints load unverified


class Store(Protocol):
    """Where a run's checkpoints lie."""

    def latest_step(self) -> int | None:
        """Returns the newest checkpoint's update number, None when there is none."""

    def restore(self, state: Tree, best: Best, before: int | None = None) -> tuple[Tree, Best, dict[str, Any]] | None:
        """Returns the newest checkpoint, None when there is none."""

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Writes a checkpoint."""

    def close(self) -> None:
        """Frees what the store holds."""


class NullStore:
    """The store of processes that save nothing: the first process restores, and all get what it restored."""

    def latest_step(self) -> None:
        """Returns None."""

    def restore(self, state: Any, best: Any, before: int | None = None) -> None:
        """Returns None."""

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class CheckpointStore:
    """The checkpoints of one run: training state, best parameters and progress, by update number.

    A save is synchronous and atomic: a process that is killed during one leaves the earlier checkpoints whole. Each
    checkpoint has a checksum, so that a damaged one is noticed and the one before it is used. Arrays are saved in full:
    a checkpoint does not depend on the devices over which they lay. With several processes only the first one saves.
    """

    def __init__(self, folder: pathlib.Path, max_to_keep: int = 3, read_only: bool = False) -> None:
        """Opens the folder.

        Args:
            folder: Where the checkpoints lie; made unless it exists.
            max_to_keep: How many of the newest checkpoints stay on the disk.
            read_only: Whether to leave everything in the folder as it is, so that a run under way can be read.
        """
        folder = folder.absolute()  # Orbax fails on a relative path, and only in a background thread
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._read_only = read_only
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.FATAL)  # Orbax warns that read-only is read-only, and prints what it cannot read
        options = ocp.CheckpointManagerOptions(
            max_to_keep=None if read_only else max_to_keep,
            create=False,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
            enable_async_checkpointing=False,
            multiprocessing_options=_single_process(),
        )
        self._manager = ocp.CheckpointManager(folder, item_names=('state', 'best', 'progress'), options=options)
        logging.set_verbosity(verbosity)

    def latest_step(self) -> int | None:
        """Returns the newest checkpoint's update number, None when there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Writes a checkpoint of update `step`, unless that one exists.

        The first checkpoint of a folder is read back at once, so that a path or a disk from which it cannot be read
        shows before the run is over.

        Args:
            step: The update number.
            state: The training state, in full arrays.
            best: The best parameters, in full arrays.
            progress: What JSON can hold.

        Raises:
            RuntimeError: Orbax declines: it never overwrites a later step.
            OSError: The disk declines, or what was written cannot be read back.
        """
        if (newest := self.latest_step()) == step:
            return
        state, best = jax.tree.map(np.asarray, (state, best))
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            best=ocp.args.StandardSave(best),
            progress=ocp.args.JsonSave({**progress, CHECKSUM: _checksum((state, best), progress)}),
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
        """Restores the newest undamaged checkpoint.

        A warning names damaged checkpoints. Unless the store is read-only, they are renamed to NUMBER.damaged, since
        Orbax would refuse to save below them.

        Args:
            state: An example of the training state: its structure, shapes and types.
            best: An example of the best parameters.
            before: An update; what was saved at it or later is left out.

        Returns:
            State, best parameters and progress; None when there is no checkpoint.

        Raises:
            BadInput: There are checkpoints and none can be read. They are left as they are.
        """
        damaged: dict[int, str] = {}
        for step in sorted((s for s in self._manager.all_steps() if before is None or s < before), reverse=True):
            restored = _quietly(functools.partial(self._restore, step, state, best))
            if not isinstance(restored, str):
                self._rename_damaged(damaged, step)
                return *jax.tree.map(jnp.asarray, restored[:2]), restored[2]
            damaged[step] = restored
        if damaged:
            raise BadInput(
                f'{self._manager.directory}: no checkpoint can be read (of update {max(damaged)}: '
                f'{damaged[max(damaged)]}); move the folder away to start again'
            )
        return None

    def _rename_damaged(self, damaged: dict[int, str], used: int) -> None:
        folder = pathlib.Path(self._manager.directory)
        for step, reason in damaged.items():
            logging.warning('checkpoint %d is damaged (%s); going back to %d', step, reason, used)
            if not self._read_only:
                numbers = itertools.count(1)
                target = folder / f'{step}.damaged'
                while target.exists():
                    target = folder / f'{step}.damaged.{next(numbers)}'
                (folder / str(step)).rename(target)
        if damaged:
            self._manager.reload()

    def _restore(self, step: int, state: Tree, best: Best) -> tuple[Tree, Best, dict[str, Any]]:
        folder, examples = pathlib.Path(self._manager.directory) / str(step), {'state': state, 'best': best}
        # Restore in the structure on the disk: earlier versions saved None for the parameters that a network lacks.
        targets = {item: self._check_arrays(folder / item, example) for item, example in examples.items()}
        items = {item: ocp.args.StandardRestore(target) for item, target in targets.items()}
        restored = self._manager.restore(step, args=ocp.args.Composite(**items, progress=ocp.args.JsonRestore()))
        state, best = (
            ocp.tree.from_flat_dict(ocp.tree.to_flat_dict(restored[item], sep='.'), example, sep='.')
            for item, example in examples.items()
        )
        progress = dict(restored.progress)
        saved, is_old = progress.pop(CHECKSUM, None), progress.pop(OLD_CHECKSUM, None) is not None
        if not is_old and saved != _checksum((state, best), progress):
            raise ValueError('its checksum differs')
        return state, best, progress

    def _check_arrays(self, folder: pathlib.Path, example: Any) -> Any:
        """Compares shapes and types before any array is read: Orbax would cast, cut or pad arrays without a word.

        Returns:
            Empty arrays in the structure in which the item was saved.

        Raises:
            ValueError: An array is of another shape or type than the example's.
        """
        tree_on_disk = ocp.StandardCheckpointHandler().metadata(folder).tree
        existing = ocp.tree.to_flat_dict(tree_on_disk, sep='.')
        expected = ocp.tree.to_flat_dict(example, sep='.')
        for name in sorted(existing.keys() | expected.keys()):
            saved, asked = (
                f'{tree[name].dtype}{list(tree[name].shape)}' if tree.get(name) is not None else 'none'
                for tree in (existing, expected)
            )
            if saved != asked:
                raise ValueError(f'{folder.name}.{name}: {saved} there, {asked} by the config')
        return jax.tree.map(lambda x: np.empty(x.shape, x.dtype), tree_on_disk)

    def restore_best(self, state: Any, best: Best) -> Best:
        """Returns the best parameters of the newest checkpoint. Raises: BadInput when no checkpoint can be read."""
        if (restored := self.restore(state, best)) is None:
            raise BadInput(f'{self._manager.directory}: holds no checkpoint')
        return restored[1]

    def close(self) -> None:
        """Frees Orbax's threads."""
        self._manager.close()


def _single_process() -> ocp.options.MultiprocessingOptions:
    """Tells Orbax that this process is the only one that saves; it would wait for all others."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    index = jax.process_index()
    return ocp.options.MultiprocessingOptions(index, {index}, 'alone')


def _quietly(call: Callable[[], Result]) -> Result | str:
    """Returns what the call returns, or in one line why it failed, and keeps Orbax and Python from printing more.

    Orbax prints the files that it cannot read in full, and abandons threads and coroutines when a disk fails; Python
    prints a traceback for each of those, for coroutines when it collects them.
    """
    earlier, hooks = threading.enumerate(), (sys.unraisablehook, sys.excepthook, threading.excepthook)
    sys.unraisablehook = lambda what: None if issubclass(what.exc_type, Exception) else hooks[0](what)
    sys.excepthook = lambda *_: None
    threading.excepthook = lambda *_: None
    python_logging.disable()
    try:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (whatever a full disk or a damaged file makes Orbax raise)
            reason = first_line(error)[:200]
        for thread in threading.enumerate():
            if thread not in earlier:
                threading.Thread.join(thread, timeout=10)  # the join of Orbax's threads raises again
        gc.collect()
        time.sleep(0.5)  # tensorstore's threads, which are not Python's, end a moment later
        return reason
    finally:
        sys.unraisablehook, sys.excepthook, threading.excepthook = hooks
        python_logging.disable(python_logging.NOTSET)


def _checksum(tree: Any, progress: dict[str, Any]) -> int:
    """Computes CRC-32 over every array's name, type, shape and bytes and the progress."""
    total = zlib.crc32(json.dumps(progress, sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator='.')
        total = zlib.crc32(f'{name}{array.dtype}{array.shape}'.encode(), total)
        total = zlib.crc32(array.data, total)
    return total
