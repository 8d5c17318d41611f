"""Checkpoints by Orbax; beside this module only `checkpoint_arrays` imports Orbax."""

import contextlib
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from nplm_jax.distributed.jax_settings import is_not_orbax
from nplm_jax.training.checkpoint_arrays import checksum_of, read_arrays
from nplm_jax.utils.errors import BadInput, Resumable, first_line, status

Tree = TypeVar('Tree')
Best = TypeVar('Best')
Result = TypeVar('Result')
MAX_TO_KEEP = 3  # newest checkpoints that stay on the disk
_FILES_BYTES = 2**17  # that the files of a checkpoint take beside its arrays, about
CHECKSUM, CHECKSUM_OF_BEST = 'crc32', 'crc32_of_best'


class CheckpointStore:
    """The checkpoints of one run: training state, best parameters and progress, by update number.

    A save is asynchronous and atomic: it goes on in threads of Orbax, and a process that is killed during one does not
    damage earlier checkpoints. Each checkpoint has a checksum, so that a damaged one is detected and the one before it
    is used. Arrays are saved in full, without padding, so a checkpoint can be restored on any number of devices. Of
    several processes only the first one saves.
    """

    def __init__(self, folder: pathlib.Path, read_only: bool = False) -> None:
        """Opens the folder.

        Args:
            folder: The folder of the checkpoints; created unless it exists.
            read_only: Whether to change nothing in the folder, so that a run that is training can be read.
        """
        folder = folder.absolute()  # Orbax fails on a relative path, and only in a background thread
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._read_only = folder, read_only
        self._last_saved: int | None = None
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        """Removes what killed or failed saves left, and returns a manager of the folder."""
        if not self._read_only:
            for partial in self._folder.glob('*.orbax-checkpoint-tmp*'):
                if partial.is_dir():  # here: a thread of Orbax might still do it when the next save begins
                    shutil.rmtree(partial, ignore_errors=True)
                else:
                    partial.unlink(missing_ok=True)
        with _without_orbax_warnings():  # about options that read_only does not need
            options = ocp.CheckpointManagerOptions(
                max_to_keep=None if self._read_only else MAX_TO_KEEP,
                create=False,
                read_only=self._read_only,
                enable_async_checkpointing=True,
                multiprocessing_options=_single_process(),
            )
            return ocp.CheckpointManager(self._folder, item_names=('state', 'best', 'progress'), options=options)

    def latest_step(self) -> int | None:
        """Returns the newest complete checkpoint's update number, None when there is none. See `wait`."""
        self.wait()
        return self._manager.latest_step()

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Begins to write a checkpoint of update `step`, unless that one exists.

        The arrays are copied before it returns; a save that is still going on is waited for first. If that one failed,
        this one is begun all the same.

        Args:
            step: The update number.
            state: The training state, in full arrays.
            best: The best parameters, in full arrays.
            progress: Values that JSON can hold.

        Raises:
            RuntimeError: Orbax refuses to save: it never overwrites a later step.
            OSError: This checkpoint or the last one cannot be written, for example because the disk is full.
        """
        failure = None
        try:
            self.wait()
        except OSError as error:
            failure = error
        if (newest := self._manager.latest_step()) == step:
            return
        state, best = jax.tree.map(np.asarray, (state, best))
        self._check_space(step, (state, best))
        checksums = {CHECKSUM: checksum_of((state, best), progress), CHECKSUM_OF_BEST: checksum_of(best, {})}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            best=ocp.args.StandardSave(best),
            progress=ocp.args.JsonSave({**progress, **checksums}),
        )
        self._last_saved = step
        saved = self._write(lambda: self._manager.save(step, args=items))  # Orbax copies NumPy arrays
        if not saved:
            raise RuntimeError(f'no checkpoint was written at update {step}: the newest is {newest}')
        if failure:
            raise failure

    def _check_space(self, step: int, arrays: Any) -> None:
        """Raises Resumable if the disk is too full: TensorStore prints tracebacks if it fills during a save."""
        num_bytes = sum(array.nbytes for array in jax.tree.leaves(arrays)) + _FILES_BYTES
        disk = os.statvfs(self._folder)
        free = (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize
        if disk.f_blocks and free < num_bytes:  # 0 blocks: it does not say
            problem = f'No space left on device (it needs up to {num_bytes:,} bytes, and {free:,} are free)'
            raise Resumable(f'the checkpoint of update {step:,} could not be written: {problem}')

    def check(self) -> None:
        """Raises OSError if the last save has failed; does not wait for one that is going on."""
        if not self._manager.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Waits until the last save is complete.

        Raises:
            OSError: The checkpoint could not be written.
        """
        self._write(self._manager.wait_until_finished)

    def _write(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (Orbax raises errors of many types, for example of a full disk)
            # A manager keeps errors of each of its threads, and would raise another one at a later save.
            self._close_manager()
            self._manager = self._open()
            cause = 'No space left on device' if status(error) == 'RESOURCE_EXHAUSTED' else first_line(error)[:200]
            message = f'the checkpoint of update {self._last_saved:,} could not be written: {cause}'
            raise Resumable(message) from None

    def restore(self, state: Tree, best: Best) -> tuple[Tree, Best, dict[str, Any]] | None:
        """Restores the newest undamaged checkpoint.

        Damaged checkpoints are logged as warnings. Unless the store is read-only, they are renamed to NUMBER.damaged,
        because Orbax would refuse to save earlier steps.

        Args:
            state: An example of the training state: its structure, shapes and types.
            best: An example of the best parameters.

        Returns:
            State and best parameters as NumPy arrays, and progress; None if there is no checkpoint.

        Raises:
            BadInput: There are checkpoints and none can be read. They are not changed.
        """
        if (restored := self._read_newest({'state': state, 'best': best})) is None:
            return None
        (state, best), progress = restored
        return state, best, progress

    def restore_best(self, best: Best) -> tuple[Best, dict[str, Any]]:
        """Returns the best parameters of the newest undamaged checkpoint and its progress; reads nothing else of it.

        Args:
            best: An example of them: their structure, shapes and types.

        Raises:
            BadInput: No checkpoint can be read.
        """
        if (restored := self._read_newest({'best': best})) is None:
            raise BadInput(self._manager.directory, 'has no checkpoint')
        (best,), progress = restored
        return jax.tree.map(jnp.asarray, best), progress

    def _read_newest(self, examples: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Returns what `_read` does of the newest checkpoint that it can read; see `restore`."""
        self.wait()
        damaged: dict[int, str] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                trees, progress = self._read(step, examples)
            except Exception as error:  # noqa: BLE001 (Orbax raises errors of many types for damaged files)
                damaged[step] = first_line(error)[:200]
                continue
            self._rename_damaged(damaged, step)
            return trees, progress
        if damaged:
            reason = f'of update {max(damaged)}: {damaged[max(damaged)]}'
            message = f'no checkpoint can be read ({reason}); move the folder away to start again'
            raise BadInput(self._manager.directory, message)
        return None

    def _rename_damaged(self, damaged: dict[int, str], used: int) -> None:
        folder = self._folder
        for step, reason in damaged.items():
            logging.warning('checkpoint %d is damaged (%s); going back to %d', step, reason, used)
            if not self._read_only:
                target = folder / f'{step}.damaged'
                if target.exists():
                    target = folder / f'{step}.damaged.{time.time_ns()}'
                (folder / str(step)).rename(target)
        if damaged:
            self._manager.reload()

    def _read(self, step: int, examples: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns some items of a checkpoint, in the structure of an example of each, and its progress.

        Raises:
            ValueError: The checksum differs, the shape or type of an array does, or a file is damaged. Orbax raises
                errors of other types.
        """
        folder = self._folder / str(step)
        trees = [read_arrays(folder / item, example) for item, example in examples.items()]
        restored = self._manager.restore(step, args=ocp.args.Composite(progress=ocp.args.JsonRestore()))
        progress = dict(restored.progress)
        checksum, checksum_of_best = progress.pop(CHECKSUM, None), progress.pop(CHECKSUM_OF_BEST, None)
        if 'state' in examples:
            differs = checksum != checksum_of(tuple(trees), progress)
        else:  # earlier versions saved no checksum of the best parameters
            differs = checksum_of_best not in (None, checksum_of(trees[0], {}))
        if differs:
            raise ValueError('its checksum differs')
        return trees, progress

    def close(self) -> None:
        """Waits for the last save (see `wait`) and frees Orbax's threads."""
        try:
            self.wait()
        finally:
            self._close_manager()

    def _close_manager(self) -> None:
        with contextlib.suppress(Exception):  # it may raise the error of a save again
            self._manager.close()


def _single_process() -> ocp.options.MultiprocessingOptions:
    """Returns options for a save by one process; by default Orbax waits for all processes."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    index = jax.process_index()
    return ocp.options.MultiprocessingOptions(index, {index}, 'alone')


@contextlib.contextmanager
def _without_orbax_warnings() -> Iterator[None]:
    """Lets Orbax's records pass by absl's logger, which it shares with others."""
    logger = logging.get_absl_logger()
    is_new = is_not_orbax not in logger.filters  # else a command has added it for the whole process
    logger.addFilter(is_not_orbax)
    try:
        yield
    finally:
        if is_new:
            logger.removeFilter(is_not_orbax)
