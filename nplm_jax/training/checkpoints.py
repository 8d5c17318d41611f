"""Saves and restores checkpoints with Orbax. Only this module and `checkpoint_arrays` import Orbax."""

import contextlib
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
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
MAX_TO_KEEP = 3  # number of checkpoints to keep; the oldest are deleted
_FILES_BYTES = 2**17  # approximate size of a checkpoint's metadata
CHECKSUM, CHECKSUM_OF_BEST, ORIGINS = 'crc32', 'crc32_of_best', 'origins'


class CheckpointStore:
    """The checkpoints of a run, which are numbered by update.

    Each checkpoint contains the training state, the best parameters and the progress. Arrays are saved unsharded and
    without padding, so that checkpoints can be restored on any number of devices. Saves are asynchronous and atomic:
    Orbax writes in background threads, and killing the process during a save does not damage earlier checkpoints.
    Damaged checkpoints are detected by their checksums and skipped. In multi-process runs, only the first process saves
    checkpoints.

    Attributes:
        origins: The distinct origins (such as commit and versions) of the processes that trained the restored
            checkpoint, followed by the origin of this process. They are saved with every checkpoint.
    """

    def __init__(self, folder: pathlib.Path, read_only: bool = False, origin: Mapping[str, Any] | None = None) -> None:
        """Opens a checkpoint folder.

        Args:
            folder: The folder, which is created if it does not exist.
            read_only: Whether to leave the folder unchanged, for example to read a checkpoint during training.
            origin: The origin of this process, such as its commit and versions, JSON-serializable.
        """
        self.origins: list[Mapping[str, Any]] = [] if origin is None else [origin]
        folder = folder.absolute()  # with a relative path, Orbax fails later in a background thread
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._read_only = folder, read_only
        self._last_saved: int | None = None
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        """Removes the files of interrupted or failed saves, and returns a new checkpoint manager."""
        if not self._read_only:
            for partial in self._folder.glob('*.orbax-checkpoint-tmp*'):
                if partial.is_dir():  # otherwise, an Orbax thread might remove it during the next save
                    shutil.rmtree(partial, ignore_errors=True)
                else:
                    partial.unlink(missing_ok=True)
        with _without_orbax_warnings():  # Orbax warns about options that have no effect if read_only is set
            options = ocp.CheckpointManagerOptions(
                max_to_keep=None if self._read_only else MAX_TO_KEEP,
                create=False,
                read_only=self._read_only,
                enable_async_checkpointing=True,
                multiprocessing_options=_single_process(),
            )
            return ocp.CheckpointManager(self._folder, item_names=('state', 'best', 'progress'), options=options)

    def latest_step(self) -> int | None:
        """Waits for a pending save. Returns the update number of the newest checkpoint, or None if there is none."""
        self.wait()
        return self._manager.latest_step()

    def save(self, step: int, state: Any, best: Any, progress: dict[str, Any]) -> None:
        """Starts writing the checkpoint of update `step`, unless this checkpoint already exists.

        This method first waits for a pending save. If the pending save fails, the new save is still started, and the
        error is raised afterwards. The arrays are copied before this method returns, so the caller may change them.

        Args:
            step: The update number.
            state: The training state, unsharded.
            best: The best parameters, unsharded.
            progress: The progress of the run, JSON-serializable.

        Raises:
            RuntimeError: Orbax did not save the checkpoint, because a checkpoint of a later update exists.
            OSError: This checkpoint or the previous checkpoint cannot be written, for example because the disk is full.
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
        progress = {**progress, ORIGINS: self.origins}
        checksums = {CHECKSUM: checksum_of((state, best), progress), CHECKSUM_OF_BEST: checksum_of(best, {})}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            best=ocp.args.StandardSave(best),
            progress=ocp.args.JsonSave({**progress, **checksums}),
        )
        self._last_saved = step
        saved = self._write(lambda: self._manager.save(step, args=items))  # Orbax copies NumPy arrays
        if not saved:
            raise RuntimeError(f'no checkpoint was written at update {step}: the newest checkpoint is {newest}')
        if failure:
            raise failure

    def _check_space(self, step: int, arrays: Any) -> None:
        """Raises Resumable if there is too little disk space for a checkpoint.

        Without this check, TensorStore would print tracebacks when the disk is full.
        """
        num_bytes = sum(array.nbytes for array in jax.tree.leaves(arrays)) + _FILES_BYTES
        disk = os.statvfs(self._folder)
        free = (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize
        if disk.f_blocks and free < num_bytes:  # zero blocks mean that the size is unknown
            problem = f'No space left on device (up to {num_bytes:,} bytes are required, but only {free:,} are free)'
            raise Resumable(f'the checkpoint of update {step:,} could not be written: {problem}')

    def check(self) -> None:
        """Raises OSError if the last save has failed. Does nothing if a save is still in progress."""
        if not self._manager.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Waits until no save is in progress.

        Raises:
            OSError: The last checkpoint could not be written.
        """
        self._write(self._manager.wait_until_finished)

    def _write(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 (Orbax raises many types of errors, for example on a full disk)
            # Reopen the manager. It stores the errors of its threads, and would raise such an error in a later save.
            self._close_manager()
            self._manager = self._open()
            cause = 'No space left on device' if status(error) == 'RESOURCE_EXHAUSTED' else first_line(error)[:200]
            raise Resumable(f'the checkpoint of update {self._last_saved:,} could not be written: {cause}') from None

    def restore(self, state: Tree, best: Best) -> tuple[Tree, Best, dict[str, Any]] | None:
        """Restores the newest undamaged checkpoint.

        A warning is logged for each damaged checkpoint. Unless the store is read-only, damaged checkpoints are renamed
        to NUMBER.damaged, because Orbax would otherwise refuse to save checkpoints of earlier updates.

        Args:
            state: An example of the training state, which defines the structure, shapes and dtypes.
            best: An example of the best parameters, which defines the structure, shapes and dtypes.

        Returns:
            The state and the best parameters as NumPy arrays, and the progress. None if there is no checkpoint.

        Raises:
            BadInput: Checkpoints exist, but none of them can be read. The checkpoints are left unchanged.
        """
        if (restored := self._read_newest({'state': state, 'best': best})) is None:
            return None
        (state, best), progress = restored
        return state, best, progress

    def restore_best(self, best: Best) -> tuple[Best, dict[str, Any]]:
        """Restores only the best parameters and the progress of the newest undamaged checkpoint.

        Args:
            best: An example of the best parameters, which defines the structure, shapes and dtypes.

        Returns:
            The best parameters as JAX arrays, and the progress.

        Raises:
            BadInput: No checkpoint can be read.
        """
        if (restored := self._read_newest({'best': best})) is None:
            raise BadInput(self._manager.directory, 'contains no checkpoints')
        (best,), progress = restored
        return jax.tree.map(jnp.asarray, best), progress

    def _read_newest(self, examples: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Reads the given items of the newest undamaged checkpoint; see `restore` and `_read`."""
        self.wait()
        damaged: dict[int, str] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                trees, progress = self._read(step, examples)
            except (MemoryError, PermissionError):  # the checkpoint may be intact
                raise
            except Exception as error:  # noqa: BLE001 (Orbax raises many types of errors for damaged files)
                if self._read_only and not (self._folder / str(step)).exists():  # training has deleted it meanwhile
                    self._manager.reload()
                    return self._read_newest(examples)
                damaged[step] = first_line(error)[:200]
                continue
            self._rename_damaged(damaged, step)
            earlier = progress.pop(ORIGINS, [{'versions': {}}])  # for checkpoints that do not record their origins
            self.origins = [*earlier, *(origin for origin in self.origins if origin not in earlier)]
            return trees, progress
        if damaged:
            reason = f'update {max(damaged)}: {damaged[max(damaged)]}'
            message = f'no checkpoint can be read ({reason}); move the folder away to restart training'
            raise BadInput(self._manager.directory, message)
        return None

    def _rename_damaged(self, damaged: dict[int, str], used: int) -> None:
        for step, reason in damaged.items():
            logging.warning('checkpoint %d is damaged (%s); using checkpoint %d', step, reason, used)
            if not self._read_only:
                target = self._folder / f'{step}.damaged'
                if target.exists():
                    target = self._folder / f'{step}.damaged.{time.time_ns()}'
                (self._folder / str(step)).rename(target)
        if damaged:
            self._manager.reload()

    def _read(self, step: int, examples: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Reads items of a checkpoint.

        Args:
            step: The update number of the checkpoint.
            examples: For each item to read, an example that defines the structure, shapes and dtypes.

        Returns:
            The items, structured like their examples, and the progress.

        Raises:
            ValueError: A checksum, a shape or a dtype differs, or a file is damaged. For damaged files, Orbax also
                raises errors of other types.
        """
        folder = self._folder / str(step)
        trees = [read_arrays(folder / item, example) for item, example in examples.items()]
        progress = dict(self._manager.restore(step, args=ocp.args.Composite(progress=ocp.args.JsonRestore())).progress)
        checksum, checksum_of_best = progress.pop(CHECKSUM, None), progress.pop(CHECKSUM_OF_BEST, None)
        if 'state' in examples:
            saved, computed = checksum, checksum_of(tuple(trees), progress)
        else:
            saved, computed = checksum_of_best, checksum_of(trees[0], {})
        if saved != computed:
            raise ValueError('checksum mismatch')
        return trees, progress

    def close(self) -> None:
        """Waits for a pending save and stops Orbax's threads. Raises OSError if the save failed."""
        try:
            self.wait()
        finally:
            self._close_manager()

    def _close_manager(self) -> None:
        with contextlib.suppress(Exception):  # may raise the error from an earlier save again
            self._manager.close()


def _single_process() -> ocp.options.MultiprocessingOptions:
    """Returns Orbax options with which this process saves alone. By default, Orbax waits for all processes of a run."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    index = jax.process_index()
    return ocp.options.MultiprocessingOptions(index, {index}, 'alone')


@contextlib.contextmanager
def _without_orbax_warnings() -> Iterator[None]:
    """Suppresses the log records of Orbax, but not those of other libraries that use the same absl logger."""
    logger = logging.get_absl_logger()
    is_new = is_not_orbax not in logger.filters  # if false, a command has added the filter permanently
    logger.addFilter(is_not_orbax)
    try:
        yield
    finally:
        if is_new:
            logger.removeFilter(is_not_orbax)
