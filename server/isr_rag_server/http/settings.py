"""Server settings: address, access control and request limits."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from threading import TIMEOUT_MAX

from isr_rag.errors import ConfigurationError

KEY_VARIABLE = "ISR_RAG_SERVE_KEY"
"""The environment variable that holds the key which clients must send."""

SHORTEST_KEY = 16
"""Characters of a key at least: a shorter one can be guessed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a request may ask for, and how many requests may be there at a time.

    Attributes:
        body: bytes of a request's body, and of its evidence where that is named by hashes.
        bodies: bytes of all bodies together that are held at a time, those of responses that nobody has taken yet
            among them, not counting the first 64 KiB of each; at least `body`. One client has half of them at most. A
            client that holds nothing else gets its response, however long that is.
        chunks: chunks of evidence in a request.
        text: characters of a claim, a question or an answer.
        statements: statements of an answer that is audited.
        seconds: time for a request, waiting included.
        audit_seconds: time for an audit whose progress is streamed, waiting included.
        queue: requests that may wait for the model beside those that it works on.
        running: requests that the gate works on at a time, three in four of them for one client at most; the scorer
            computes theirs together.
        body_seconds: time in which the headers, and then the body, of a request must have arrived, and its response
            must have been taken.
        kept_bytes: text of indexed chunks that is remembered under its hash.
        connections: connections that may be open; a client has a quarter of them, or 16, at most.
        wrong_keys: wrong keys that a client may send within a minute.

    Raises:
        ConfigurationError: for a limit below 1, no more than 0 seconds, or more than a thread can wait.
    """

    body: int = 4 * 2**20
    bodies: int = 32 * 2**20
    chunks: int = 200
    text: int = 100_000
    statements: int = 200
    seconds: float = 60.0
    audit_seconds: float = 600.0
    queue: int = 64
    running: int = 8
    body_seconds: float = 15.0
    kept_bytes: int = 64 * 2**20
    connections: int = 1000
    wrong_keys: int = 20

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least = 0 if one.name == "queue" else 1
            if isinstance(value, float) and not 0.0 < value <= TIMEOUT_MAX:
                raise ConfigurationError(f"{one.name} must be more than 0 and at most {TIMEOUT_MAX:g} s, got {value}")
            if isinstance(value, int) and value < least:
                raise ConfigurationError(f"{one.name} must be at least {least}, got {value}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a server listens, and whom it serves.

    Attributes:
        host: address that it is bound to.
        port: port; 0 for any that is free.
        key: what clients send as `Authorization: Bearer KEY`; None for no key, on the loopback address only. Kept
            out of `repr`.
        origins: web origins whose pages may ask (CORS); none by default.
        log: file that gets a line of JSON per decision, without any text; None for none.
        folder: documents that the MCP tool `search_and_judge` searches; None for no such tool.
        rounds: searches that one client may make in them, until it has made none for half an hour.
        proxies: addresses of proxies whose `X-Forwarded-For` says which client they ask for; read by `serve` only.
        limits: see `Limits`.

    Raises:
        ConfigurationError: for a public address without a key, a key that is too short or not printable ASCII, an
            origin that no browser sends, or a port out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    log: Path | None = None
    folder: Path | None = None
    rounds: int = 12
    proxies: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"port must lie between 0 and 65535, got {self.port}")
        if self.rounds < 1:
            raise ConfigurationError(f"rounds must be at least 1, got {self.rounds}")
        for proxy in self.proxies:
            _check_address(proxy)
        for origin in self.origins:
            _check_origin(origin)
        if self.key is not None:
            _check_key(self.key)
        elif not self.local:
            raise ConfigurationError(
                f"{self.host} can be reached from other machines: set a key of at least {SHORTEST_KEY} characters in "
                f"the environment variable {KEY_VARIABLE}, or bind to 127.0.0.1"
            )
        if "*" in self.origins and self.key is None:
            raise ConfigurationError(f"any web page may ask with the origin *: set a key in {KEY_VARIABLE}")

    @property
    def local(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)


def key_from_environment() -> str | None:
    """The key that clients must send; None where the variable is not there.

    Raises:
        ConfigurationError: if the variable is there and empty.
    """
    key = os.environ.get(KEY_VARIABLE)
    if key is not None and not key.strip():
        raise ConfigurationError(f"{KEY_VARIABLE} is set but empty: give a key, or unset it")
    return key.strip() if key is not None else None


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_address(proxy: str) -> None:
    try:
        ipaddress.ip_address(proxy)
    except ValueError:
        raise ConfigurationError(f"a proxy is named by its address, such as 10.0.0.5, not {proxy!r}") from None


def _check_origin(origin: str) -> None:
    """As browsers write it, or none would ever be the same."""
    scheme, _, rest = origin.partition("://")
    usual = {"http": ":80", "https": ":443"}.get(scheme)
    if origin == "*" or (
        re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+", origin) and not (usual and rest.endswith(usual))
    ):
        return
    raise ConfigurationError(
        "an origin is a scheme and a host in small letters, with a port where that is not the usual one, such as "
        f"https://app.example:8443, not {origin!r}"
    )


def _check_key(key: str) -> None:
    if len(key) < SHORTEST_KEY:
        raise ConfigurationError(
            f"the key in {KEY_VARIABLE} has {len(key)} characters; take {SHORTEST_KEY} or more, such as "
            'python -c "import secrets; print(secrets.token_urlsafe(32))" prints'
        )
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(f"the key in {KEY_VARIABLE} must be printable ASCII without spaces")
