"""The database of a search: its URL, which may hold a password, and Optuna's storage in it."""

import contextlib
import os
import pathlib
import warnings
from collections.abc import Iterator

import optuna
import sqlalchemy as sa

from nplm_jax.utils.errors import BadInput, first_line, require

ENVIRONMENT = 'NPLM_STORAGE'  # the variable with the URL, where --storage is not given
HEARTBEAT = 60  # seconds; a trial whose process was silent for twice as long is run again
MAX_RETRIES = 3  # of one trial
_TIMEOUT = 10  # seconds to connect
_ALLOWED = 'must be postgresql+psycopg://USER@HOST/DATABASE'


def find_url(flag: str | None, folder: pathlib.Path) -> str:
    """Returns the URL of a search: of --storage, else of $NPLM_STORAGE, else of a SQLite file in its folder.

    `postgresql://` means `postgresql+psycopg://`.

    Args:
        flag: the value of --storage.
        folder: the folder of the search.

    Raises:
        BadInput: it is no URL, or of a database that a search cannot use. The message has no password.
    """
    text = flag or os.environ.get(ENVIRONMENT)
    if not text:
        return str(sa.URL.create('sqlite', database=str(folder.absolute() / 'search.db')))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise BadInput(f'--storage: not a URL; {_ALLOWED}') from None
    if url.drivername == 'postgresql':
        url = url.set(drivername='postgresql+psycopg')
    is_allowed = url.drivername == 'postgresql+psycopg' and bool(url.database)
    require(is_allowed, '--storage', _show(url), _ALLOWED)
    return url.render_as_string(hide_password=False)


def is_sqlite(url: str) -> bool:
    """Returns whether the URL is that of a file, which one process may use."""
    return url.startswith('sqlite')


@contextlib.contextmanager
def opened(url: str) -> Iterator[optuna.storages.RDBStorage]:
    """Connects to the database, makes its tables if it has none, and disconnects at the end.

    Args:
        url: what `find_url` returned.

    Yields:
        The storage.

    Raises:
        BadInput: the driver is not installed, or the database is missing, does not answer or is not Optuna's.
        OSError: the database stopped answering.
    """
    timeout = {} if is_sqlite(url) else {'connect_args': {'connect_timeout': _TIMEOUT}}
    shown = _show(sa.make_url(url))
    try:
        with ignored_experimental():
            storage = optuna.storages.RDBStorage(
                url,
                engine_kwargs={'pool_pre_ping': True, **timeout},
                heartbeat_interval=HEARTBEAT,
                heartbeat_stale_trial_callback=retry(MAX_RETRIES),
            )
    except ImportError:
        raise BadInput(f'--storage={shown}: psycopg is not installed: pip install "nplm-jax[search]"') from None
    except (sa.exc.SQLAlchemyError, RuntimeError) as error:
        cause = getattr(error, 'orig', None) or error
        raise BadInput(f'--storage={shown}: cannot be used ({first_line(cause)})') from None
    try:
        yield storage
    except (optuna.exceptions.StorageInternalError, sa.exc.SQLAlchemyError) as error:
        raise OSError(f'--storage={shown}: failed ({type(error).__name__})') from None
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _show(url: sa.URL) -> str:
    """Returns the URL without password and options."""
    return str(sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database))


def retry(max_retries: int | None = None) -> optuna.storages.RetryHeartbeatStaleTrialCallback:
    """Returns what adds a trial again that a process left: the new one goes on in the folder of the first."""
    with ignored_experimental():
        return optuna.storages.RetryHeartbeatStaleTrialCallback(max_retries, inherit_intermediate_values=True)


@contextlib.contextmanager
def ignored_experimental() -> Iterator[None]:
    """Ignores Optuna's warnings that heartbeats, which it has had since 2021, are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
        yield
