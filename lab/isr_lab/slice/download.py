"""Fetching the original files: HTTPS only, resumed where it was cut off, checked against pinned hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx

from isr_rag._util.files import sha256_of, write_json
from isr_rag.errors import ISRError

LOCK = "slice.lock.json"
_TRIES = 5
DownloadProgress = Callable[[str, int, int], None]
"""Called with a file's name, bytes had, and bytes to have (0 when the server does not say)."""


class DownloadError(ISRError, RuntimeError):
    """A file could not be fetched whole from any of its addresses."""


class HashMismatchError(ISRError, ValueError):
    """A file's bytes are not those that were pinned or recorded."""


@dataclass(frozen=True, slots=True)
class Original:
    """One upstream file.

    Attributes:
        path: where it goes in the raw folder.
        urls: addresses of the same bytes, the publisher's first.
        sha256: its hash.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str


ORIGINALS: tuple[Original, ...] = (
    Original(
        "fever/shared_task_dev.jsonl",
        (
            "https://fever.ai/download/fever/shared_task_dev.jsonl",
            "https://zenodo.org/records/4925954/files/shared_task_dev.jsonl?download=1",
        ),
        "e89865bfe1b4dd054e03dd57d7241a6fde24862905f31117cf0cd719f7c78df7",
    ),
    Original(
        "fever/wiki-pages.zip",
        (
            "https://fever.ai/download/fever/wiki-pages.zip",
            "https://zenodo.org/records/4925954/files/wiki-pages.zip?download=1",
        ),
        "4b06d95da6adf7fe02d2796176c670dacccb21348da89cba4c50676ab99665f2",
    ),
    Original(
        "hotpotqa/hotpot_dev_distractor_v1.json",
        (
            "https://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json",
            "https://huggingface.co/datasets/RAGLAB/data/resolve/main/eval_datasets/HotPotQA/"
            "hotpot_dev_distractor_v1.json",
        ),
        "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
    ),
    Original(
        "nq_open/NQ-open.dev.jsonl",
        (
            "https://raw.githubusercontent.com/google-research-datasets/natural-questions/"
            "fb26a3073b1fe636c97302890a27b491d6530130/nq_open/NQ-open.dev.jsonl",
        ),
        "f15567f38099f3615f5b8a685c0aef449c11ad90d3da3735e8d1b98115b40616",
    ),
    Original(
        "popqa/popqa.tsv",
        (
            "https://huggingface.co/datasets/akariasai/PopQA/resolve/098765c79ea10a2cb19c828324e33281b8336ec0/test.tsv",
            "https://raw.githubusercontent.com/AlexTMallen/adaptive-retrieval/main/data/popQA.tsv",
        ),
        "9a5227f41bff0e4c331d4a774d946b12f95307892b58f860a9606ef356e6089b",
    ),
)


def fetch_originals(
    raw: Path,
    progress: DownloadProgress = lambda name, done, total: None,
    originals: Iterable[Original] = ORIGINALS,
) -> None:
    """Fetch what is missing into `raw`, check everything against its pin, and record its hash in `slice.lock.json`.

    An interrupted download leaves `NAME.part` and is resumed by the next call.

    Args:
        raw: folder for the files, made if missing.
        progress: told how far each file is.
        originals: what to fetch.

    Raises:
        DownloadError: if a file cannot be had whole from any address.
        HashMismatchError: if a file is not what was pinned; it is left as `NAME.part` or in place.
    """
    raw.mkdir(parents=True, exist_ok=True)
    lock = _read_lock(raw / LOCK)
    with httpx.Client(follow_redirects=True, timeout=60.0) as http:
        for original in originals:
            _one(raw, original, http, progress)
            if lock.get(original.path) != original.sha256:
                lock[original.path] = original.sha256
                write_json(raw / LOCK, dict(sorted(lock.items())))


def check_lock(raw: Path, hashes: Mapping[str, str]) -> None:
    """Compare files that were read with the raw folder's lock file; nothing happens when it has none.

    Raises:
        HashMismatchError: if a locked file has other bytes.
    """
    lock = _read_lock(raw / LOCK)
    for path, found in hashes.items():
        if lock.get(path, found) != found:
            raise HashMismatchError(f"{raw / path} has sha256 {found}, but {LOCK} says {lock[path]}: fetch it again")


def _one(raw: Path, original: Original, http: httpx.Client, progress: DownloadProgress) -> None:
    target = raw / original.path
    if target.exists():
        found = sha256_of(target)
        if found != original.sha256:
            raise HashMismatchError(
                f"{target} has sha256 {found}, expected {original.sha256}: delete it and fetch it again"
            )
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    _fetch(original, part, http, progress)
    found = sha256_of(part)
    if found != original.sha256:
        raise HashMismatchError(
            f"{original.path} came with sha256 {found}, expected {original.sha256}. It stays at {part}: delete it and "
            "try again, or put the file there yourself and give its folder as the raw folder"
        )
    part.replace(target)


def _fetch(original: Original, part: Path, http: httpx.Client, progress: DownloadProgress) -> None:
    """The whole file into `part`, from the first address that gives it, resuming after every interruption."""
    problems: list[str] = []
    for url in original.urls:
        if urlsplit(url).scheme != "https" and urlsplit(url).hostname not in ("127.0.0.1", "localhost"):
            raise DownloadError(f"{url} is not an https address")
        for _ in range(_TRIES):
            try:
                if _stream(url, part, http, original.path, progress):
                    return
            except httpx.HTTPStatusError as error:
                problems.append(f"{url}: {error.response.status_code}")
                break
            except httpx.HTTPError as error:
                problems.append(f"{url}: {type(error).__name__}: {error}")
    raise DownloadError(
        f"{original.path} could not be fetched ({'; '.join(problems[-4:])}). What came stays at {part} and is "
        "resumed next time; or put the file there yourself and give its folder as the raw folder"
    )


def _stream(url: str, part: Path, http: httpx.Client, name: str, progress: DownloadProgress) -> bool:
    """Append what is missing; True when the file is whole. A server that ignores the range starts over."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with http.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:  # nothing is left to send: the part is whole, or longer than the file
            return _whole(response.headers.get("content-range", ""), have, part)
        response.raise_for_status()
        if response.status_code != 206:
            have = 0
        length = int(response.headers.get("content-length", 0))
        total = have + length if length else 0
        with part.open("ab" if have else "wb") as stream:
            for block in response.iter_raw():
                stream.write(block)
                have += len(block)
                progress(name, have, total)
    return not total or have == total


def _whole(content_range: str, have: int, part: Path) -> bool:
    if content_range.endswith(f"/{have}"):
        return True
    part.unlink()
    return False


def _read_lock(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        lock: object = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise HashMismatchError(f"the lock file {path} is not JSON ({error}): restore it or delete it") from error
    if not isinstance(lock, dict) or not all(isinstance(v, str) for v in cast("dict[str, object]", lock).values()):
        raise HashMismatchError(f"the lock file {path} is not an object of hashes: restore it or delete it")
    return cast("dict[str, str]", lock)
