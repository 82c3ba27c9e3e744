"""Downloads from a real local server: resumed after a cut, checked against pin and lock."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from isr_lab.slice.download import (
    LOCK,
    ORIGINALS,
    DownloadError,
    HashMismatchError,
    Original,
    check_lock,
    fetch_originals,
)

BODY = bytes(range(256)) * 4000
HASH = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves BODY at /file; cuts the connection after `cut` bytes as often as `cuts` says."""

    cuts: ClassVar[int] = 0
    ranges: ClassVar[bool] = True
    requests: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        type(self).requests.append(wanted)
        if not self.path.startswith("/file"):
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if start >= len(BODY):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(BODY)}")
            self.end_headers()
            return
        body = BODY[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).cuts:
            type(self).cuts -= 1
            body = body[: len(body) // 3]
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.cuts, Handler.ranges, Handler.requests = 0, True, []
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    thread.join()
    http.server_close()


def original(url: str, sha256: str = HASH) -> Original:
    return Original("a/file.bin", (f"{url}/file",), sha256)


def test_a_file_comes_whole_with_progress(server: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch_originals(tmp_path, lambda *step: seen.append(step), [original(server)])
    assert (tmp_path / "a/file.bin").read_bytes() == BODY
    assert seen[-1] == ("a/file.bin", len(BODY), len(BODY))


def test_an_interrupted_download_goes_on_where_it_was_cut(server: str, tmp_path: Path) -> None:
    Handler.cuts = 2
    fetch_originals(tmp_path, originals=[original(server)])
    assert (tmp_path / "a/file.bin").read_bytes() == BODY
    assert Handler.requests[0] is None
    assert Handler.requests[1] == f"bytes={len(BODY) // 3}-"
    assert len(Handler.requests) == 3


def test_a_download_cut_for_good_is_resumed_by_the_next_call(server: str, tmp_path: Path) -> None:
    Handler.cuts = 99
    with pytest.raises(DownloadError, match="is resumed next time"):
        fetch_originals(tmp_path, originals=[original(server)])
    part = tmp_path / "a/file.bin.part"
    had = part.stat().st_size
    assert 0 < had < len(BODY)
    Handler.cuts, Handler.requests = 0, []
    fetch_originals(tmp_path, originals=[original(server)])
    assert Handler.requests == [f"bytes={had}-"]
    assert not part.exists()


def test_a_whole_part_is_taken_as_it_is(server: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file.bin.part").write_bytes(BODY)
    fetch_originals(tmp_path, originals=[original(server)])
    assert (tmp_path / "a/file.bin").read_bytes() == BODY


def test_a_server_without_ranges_starts_over(server: str, tmp_path: Path) -> None:
    Handler.ranges = False
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file.bin.part").write_bytes(BODY[:1000])
    fetch_originals(tmp_path, originals=[original(server)])
    assert (tmp_path / "a/file.bin").read_bytes() == BODY


def test_a_download_is_recorded_and_checked_ever_after(server: str, tmp_path: Path) -> None:
    fetch_originals(tmp_path, originals=[original(server)])
    assert json.loads((tmp_path / LOCK).read_text()) == {"a/file.bin": HASH}
    fetch_originals(tmp_path, originals=[original(server)])
    assert len(Handler.requests) == 1
    (tmp_path / "a/file.bin").write_bytes(BODY[:-1])
    with pytest.raises(HashMismatchError, match="delete it and fetch it again"):
        fetch_originals(tmp_path, originals=[original(server)])


def test_a_build_checks_the_files_it_reads_against_the_lock(tmp_path: Path) -> None:
    check_lock(tmp_path, {"a/b.json": "1"})
    (tmp_path / LOCK).write_text('{"a/b.json": "1"}')
    check_lock(tmp_path, {"a/b.json": "1", "a/c.json": "2"})
    with pytest.raises(HashMismatchError, match="fetch it again"):
        check_lock(tmp_path, {"a/b.json": "3"})


def test_other_bytes_than_pinned_are_refused_and_never_put_in_place(server: str, tmp_path: Path) -> None:
    with pytest.raises(HashMismatchError, match="expected 0000"):
        fetch_originals(tmp_path, originals=[original(server, "0000")])
    assert not (tmp_path / "a/file.bin").exists()


def test_the_next_address_is_tried_when_one_fails(server: str, tmp_path: Path) -> None:
    both = Original("a/file.bin", (f"{server}/gone", f"{server}/file"), HASH)
    fetch_originals(tmp_path, originals=[both])
    assert (tmp_path / "a/file.bin").read_bytes() == BODY


def test_nothing_is_fetched_without_https(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="not an https address"):
        fetch_originals(tmp_path, originals=[Original("x", ("http://example.org/x",), "0000")])
    assert all(url.startswith("https://") for one in ORIGINALS for url in one.urls)
    assert all(len(one.sha256) == 64 for one in ORIGINALS)
