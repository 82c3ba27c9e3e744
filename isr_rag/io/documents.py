"""Read HTML and PDF in a process of its own, which is killed if a document takes too much time or memory.

The process is this module, run as a program. It reads from its standard input, may write no file, and knows no
environment variable that could hold a key. Its memory is limited where the system can (not on Windows and macOS).
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import unicodedata
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from isr_rag._util.text import printable, sentence_spans
from isr_rag.errors import InvalidInputError, MissingDependencyError

SECONDS = 60.0  # wall-clock time for one document by default
CHARACTERS = 5_000_000  # most characters of text of one document
PAGES = 2_000  # most pages of a PDF

MEMORY = 256 * 2**20
"""Bytes of address space for documents, beside what the libraries take (resident: 36 MB for PDF, 55 for HTML)."""

_PACKAGES = {"HTML": "trafilatura", "PDF": "pypdf"}
_INHERITED = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_LIGATURE = re.compile("[\ufb00-\ufb06]")
BROKEN = re.compile(r"(?<=[a-z])(?<!\b(?:self|well|long|part|half|full|high|five))-\n(?!(?:and|or|to)\b)(?=[a-z])")


class DocumentReader:
    """A process that reads documents one after another, which may take `memory` bytes in it.

    It starts with the first document, and ends with the `with` block.
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def kill(self) -> None:
        """End the process, from any thread, and what begins later: what is being read is an error at once."""
        self._killed = True
        if (process := self._process) is not None:
            process.kill()

    def read(self, kind: str, raw: bytes, seconds: float = SECONDS) -> tuple[list[str], str | None]:
        """The paragraphs (HTML, UTF-8) or sentences (PDF) of a document, and the title of a page.

        Raises:
            InvalidInputError: for a document that is damaged or too large, or was not read in time.
            MissingDependencyError: without the extra "documents".
        """
        if find_spec(_PACKAGES[kind]) is None:
            raise MissingDependencyError(f"{kind} evidence", _PACKAGES[kind], "documents")
        begun = time.monotonic()
        process = self._started()
        source, sink = process.stdout, process.stdin
        assert source is not None and sink is not None
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            sink.write(b"%s %d %d %d\n" % (kind.encode(), len(raw), math.ceil(seconds), self._memory))
            sink.write(raw)
            sink.flush()
            said = json.loads(source.readline())
        except (OSError, ValueError) as error:  # it was killed, or crashed
            self.__exit__()
            late, most = time.monotonic() - begun >= seconds, self._memory >> 20
            why = f"takes longer than {seconds:.3g} s" if late else f"needs more than {most} MB, or crashed"
            raise InvalidInputError(f"reading it {why}: give its text instead") from error
        finally:
            timer.cancel()
        if "missing" in said:
            raise MissingDependencyError(f"{kind} evidence", said["missing"], "documents")
        if "error" in said:
            raise InvalidInputError(said["error"])
        return said["texts"], said["title"]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            settings = {name: os.environ[name] for name in _INHERITED if name in os.environ}
            settings["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            command, pipe = [sys.executable, "-P", "-B", __file__], subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=settings)
        if self._killed:  # while it began
            self._process.kill()
        return self._process


# From here on: what the process does.


def _work(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer each document with a line of JSON."""
    seen = set[str]()
    while header := source.readline().split():
        kind, raw, memory = header[0].decode(), source.read(int(header[1])), int(header[3])
        _limit(int(header[2]))
        if kind not in seen:
            seen.add(kind)
            _limit_memory(kind, memory)
        sink.write(json.dumps(_answer(kind, raw, memory), ensure_ascii=False).encode(errors="replace") + b"\n")
        sink.flush()


def _limit(seconds: int) -> None:
    """Bound the time of the next document, also if nobody is left to kill this process, and write no files."""
    if sys.platform != "win32":
        import resource

        for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
            resource.setrlimit(kind, (0, 0))
        hard, most = resource.getrlimit(resource.RLIMIT_CPU)[1], math.ceil(time.process_time()) + seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (min(most, hard % 2**64), hard))  # -1 is no limit


def _limit_memory(kind: str, most: int) -> None:
    """Load the library of a kind, and bound what documents take beside it."""
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    with suppress(ImportError):  # which is told when it is needed
        import_module(_PACKAGES[kind])
    with suppress(OSError):
        taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (min(taken + most, hard % 2**64), hard))


def _answer(kind: str, raw: bytes, memory: int = MEMORY) -> dict[str, Any]:
    try:
        texts, title = _html(raw) if kind == "HTML" else (_pdf(raw), None)
    except ImportError as error:
        return {"missing": error.name or _PACKAGES[kind]}
    except InvalidInputError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"reading it needs more than {memory >> 20} MB: give its text instead"}
    except Exception as error:  # whatever a parser raises about a damaged file
        return {"error": f"it cannot be read: {type(error).__name__}: {printable(str(error), 200)}"}
    return {"texts": texts, "title": title}


def _html(raw: bytes) -> tuple[list[str], str | None]:
    """The main text of a page, without menus and footers."""
    from trafilatura import bare_extraction

    page = bare_extraction(raw.decode(), include_comments=False, with_metadata=True, favor_recall=True)  # headings too
    main = str(getattr(page, "text", None) or "")
    check_size(len(main))
    return main.split("\n"), (getattr(page, "title", None) or "")[:300]  # which each chunk gets


def _pdf(raw: bytes) -> list[str]:
    """The sentences of every page, because a PDF marks no paragraphs; ligatures are cut, broken words joined."""
    from pypdf import PdfReader

    pages = PdfReader(BytesIO(raw)).pages
    if len(pages) > PAGES:
        raise InvalidInputError(f"it has {len(pages):,} pages; {PAGES:,} are read: cut it into parts")
    texts, size = list[str](), 0
    for page in pages:
        text = BROKEN.sub("", page.extract_text())  # words over the end of a line
        size += len(text)
        check_size(size)
        text = " ".join(_LIGATURE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text).split())
        texts += [text[first:last] for first, last in sentence_spans(text, prose=True)]
    return texts


def check_size(characters: int, name: str = "it") -> None:
    """InvalidInputError for a document of too much text."""
    if characters > CHARACTERS:
        raise InvalidInputError(f"{name} has more than {CHARACTERS:,} characters of text: cut it into parts")


if __name__ == "__main__":
    _out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints does not get among the answers
    _work(sys.stdin.buffer, _out)
