"""Opens the database of a search, given by a URL that may contain a password, as an Optuna storage."""

import contextlib
import functools
import os
import pathlib
import re
import warnings
from collections.abc import Iterator

import optuna
import sqlalchemy as sa

from nplm_jax.utils.errors import BadInput, Resumable, first_line, require

ENVIRONMENT = 'NPLM_STORAGE'  # environment variable with the URL, used without --storage
HEARTBEAT = 60  # seconds between heartbeats; after twice this time without one, a trial is retried
MAX_RETRIES = 3  # maximum number of retries of a trial
_TIMEOUT = 10  # connection timeout (seconds)
_PLAIN = re.compile(r'[^\s=?#@;]*')
_ALLOWED = 'must have the form postgresql+psycopg://USER@HOST/DATABASE'


def find_url(flag: str | None, folder: pathlib.Path) -> str:
    """Returns the URL of the database of a search: --storage, $NPLM_STORAGE, or a SQLite file in the search's folder.

    `postgresql://` is interpreted as `postgresql+psycopg://`.

    Args:
        flag: The value of --storage.
        folder: The folder of the search.

    Raises:
        BadInput: The URL is invalid or refers to an unsupported database. The message does not show the password.
    """
    text = flag or os.environ.get(ENVIRONMENT)
    if not text:
        return str(sa.URL.create('sqlite', database=str(folder.absolute() / 'search.db')))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise BadInput('--storage', f'is not a URL; it {_ALLOWED}') from None
    parts = url.username or '', url.host or '', url.database or ''
    require(
        not any('@' in part for part in parts), '--storage', ..., 'must contain %40 instead of each @ in the password'
    )
    problem = f'is not a URL; it {_ALLOWED}, with characters other than letters and digits written as %XX'
    require(all(map(_PLAIN.fullmatch, parts)), '--storage', ..., problem)  # any part may contain the password
    if url.drivername == 'postgresql':
        url = url.set(drivername='postgresql+psycopg')
    is_allowed = url.drivername == 'postgresql+psycopg' and bool(url.database)
    require(is_allowed, '--storage', _show(url), _ALLOWED)
    return url.render_as_string(hide_password=False)


def is_sqlite(url: str) -> bool:
    """Returns whether the URL refers to a SQLite file, which only one process may use."""
    return url.startswith('sqlite')


@contextlib.contextmanager
def opened(url: str) -> Iterator[optuna.storages.RDBStorage]:
    """Connects to the database, creates missing tables, and disconnects when the block ends.

    Args:
        url: The URL, from `find_url`.

    Yields:
        The storage.

    Raises:
        BadInput: The driver cannot be imported, or the database is missing, does not respond or was not created by
            Optuna.
        Resumable: The database stopped responding.
    """
    timeout = {} if is_sqlite(url) else {'connect_args': {'connect_timeout': _TIMEOUT}}
    shown = _show(sa.make_url(url))
    with warnings.catch_warnings():
        # Optuna has had heartbeats since 2021, but still warns that they are experimental.
        warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
        connect = functools.partial(
            optuna.storages.RDBStorage,
            url,
            engine_kwargs={'pool_pre_ping': True, **timeout},
            heartbeat_interval=HEARTBEAT,
            heartbeat_stale_trial_callback=functools.partial(retry, limit=MAX_RETRIES),
        )
        try:
            try:
                storage = connect()
            except (sa.exc.IntegrityError, sa.exc.ProgrammingError):  # another process has just created the tables
                storage = connect()
        except ImportError as error:
            problem = f'requires psycopg ({first_line(error)}); install it with: pip install "nplm-jax[search]"'
            raise BadInput('--storage', problem, value=shown) from None
        except (sa.exc.SQLAlchemyError, RuntimeError) as error:
            cause = getattr(error, 'orig', None) or error
            password = str(sa.make_url(url).password or '')
            reason = type(cause).__name__ if password and password in str(cause) else first_line(cause)
            raise BadInput('--storage', f'cannot be used ({reason})', value=shown) from None
        try:
            yield storage
        except (optuna.exceptions.StorageInternalError, sa.exc.SQLAlchemyError) as error:
            raise Resumable(f'--storage={shown}: the database failed ({type(error).__name__})') from None
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _show(url: sa.URL) -> str:
    """Returns the URL without the password and options."""
    return str(sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database))


def retry(study: optuna.Study, trial: optuna.trial.FrozenTrial, limit: int | None = None) -> None:
    """Requeues a trial, at most `limit` times. The new trial continues in the folder of the original trial."""
    optuna.storages.RetryHeartbeatStaleTrialCallback(limit, inherit_intermediate_values=True)(study, trial)
