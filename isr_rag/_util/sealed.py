"""Frozen dataclasses as JSON files that carry their kind, their schema version and a hash of their content."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from isr_rag._util import strict_json
from isr_rag._util.files import write_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SealedFormat:
    """One kind of file: `error` is raised for what is not of this kind and version; `remedy` says what to do then."""

    kind: str
    version: int
    error: type[Exception]
    remedy: str

    def seal(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content with kind, schema version and SHA-256 of the whole; `error` for NaN or an infinite number."""
        whole = {"kind": self.kind, "schema_version": self.version, **content}
        try:
            return {**whole, "sha256": _digest(whole)}
        except ValueError as error:
            raise self.error(f"this {self.kind} holds numbers that JSON cannot: {error}") from error

    def save(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write the sealed content atomically; folders are created as needed."""
        write_json(path, self.seal(content))

    def load(self, path: Path, kind: type[T]) -> T:
        """Read, verify and rebuild a dataclass; `error` for a file that is not of this kind, was altered or damaged."""
        try:
            parsed: object = strict_json.loads(path.read_text("utf-8"))
        except ValueError as error:  # also undecodable bytes
            raise self.error(f"{path} is not a JSON file: {error}") from error
        data = cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}
        if data.get("kind") != self.kind:
            raise self.error(f"{path} is not a file of kind {self.kind}")
        version = data.get("schema_version")
        if version != self.version:
            raise self.error(f"{path} has schema version {version!r}, this isr-rag reads {self.version}. {self.remedy}")
        if data.pop("sha256", None) != _digest(data):
            raise self.error(f"{path} was altered after it was written: it does not match its sha256. {self.remedy}")
        try:
            return from_plain(kind, {name: v for name, v in data.items() if name not in ("kind", "schema_version")})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self.error(f"{path} is damaged: {error!r}") from error


def from_plain(kind: type[T], value: Any) -> T:
    """Rebuild a dataclass from the plain data that `dataclasses.asdict` and JSON made of it.

    Fields are numbers, strings, booleans, literals, enums, tuples, mappings, other such dataclasses, or None. What is
    an instance of its field's class already is taken as it is. TypeError, ValueError or KeyError for misshapen fields.
    """
    return cast(T, _rebuilt(kind, value))


def _rebuilt(kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        own = next(arg for arg in args if arg is not type(None))
        return None if value is None and type(None) in args else _rebuilt(own, value)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError(f"{value!r:.40} is not a list")
        kinds = [args[0]] * len(value) if args[-1] is ... else list(args)
        return tuple(_rebuilt(one, item) for one, item in zip(kinds, value, strict=True))
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{value!r:.40} is not one of {args}")
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(value, Mapping) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return cast(Any, kind)(**{name: _rebuilt(hints.get(name, Any), item) for name, item in value.items()})
    if origin is not None:  # a mapping
        return {str(name): _rebuilt(args[1], item) for name, item in value.items()}
    if kind is float and isinstance(value, int):
        return float(value)
    if kind is not Any and not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} is not {kind.__name__}")
    return value


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
