"""What an examination of this installation or of a server found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `healthy` is False where the default gate cannot work because of it."""

    text: str
    healthy: bool = True
