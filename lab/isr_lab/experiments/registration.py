"""What a run was registered as before its first score, and whether that still holds.

The figures of an experiment mean what they say only if its settings were fixed beforehand. So a run writes them down,
with a hash over all of it, before anything is scored; and nothing is reported under settings other than those.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, cast

from isr_lab.experiments.protocol import Experiment
from isr_lab.experiments.trials import Trial
from isr_lab.slice.schema import SliceItem
from isr_rag import __version__
from isr_rag._util.files import sha256_of, write_atomically
from isr_rag.errors import ConfigurationError

_FORMAT = 1


def registration(
    experiment: Experiment, items: Sequence[SliceItem], trials: Sequence[Trial], identity: str, layout: str
) -> dict[str, Any]:
    """All that a run's figures depend on, as plain values: settings, slice, trials, scorer and version.

    Args:
        experiment: a dataclass; its fields are the settings. A file among them counts by its name and content.
        items: the slice, in order.
        trials: what the experiment makes of it; their hash pins the orderings drawn.
        identity: of the scorer.
        layout: of the scorer.
    """
    assert is_dataclass(experiment) and not isinstance(experiment, type)
    settings = {name: _plain(value) for name, value in asdict(experiment).items()}
    drawn = [[trial.name, trial.key, trial.target, dict(trial.facts)] for trial in trials]
    return {
        "format": _FORMAT,
        "experiment": experiment.name,
        "settings": settings,
        "slice": {"items": len(items), "sha256": _sha256([item.model_dump(mode="json") for item in items])},
        "trials": {"number": len(trials), "sha256": _sha256(drawn)},
        "scorer": {"identity": identity, "layout": layout},
        "isr_rag": __version__,
    }


def register(path: Path, asked: Mapping[str, Any]) -> str:
    """Write a registration, or hold the one that is there against what is asked now.

    Args:
        path: where it lies.
        asked: what `registration` made.

    Returns:
        Its sha256.

    Raises:
        ConfigurationError: if what is registered differs from what is asked, or was altered after it was written.
    """
    digest = _sha256(asked)
    if not path.exists():
        write_atomically(path, json.dumps({**asked, "sha256": digest}, indent=1, ensure_ascii=False) + "\n")
        return digest
    registered = read_registration(path)
    if changes := [f"{name} is {there} there and {here} now" for name, there, here in _differences(registered, asked)]:
        raise ConfigurationError(
            f"this run was registered in {path} before it was scored, as something else: {'; '.join(changes)}. What is "
            "registered is not changed afterwards: ask for what is there, or use another folder (--out)"
        )
    return digest


def read_registration(path: Path) -> dict[str, Any]:
    """What a run was registered as, without its hash.

    Raises:
        ConfigurationError: if it was altered after it was written.
    """
    try:
        registered = cast(dict[str, Any], json.loads(path.read_text("utf-8")))
        stated = registered.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _altered(path, "it is damaged") from error
    if stated != _sha256(registered):
        raise _altered(path, "its content does not match its sha256")
    return registered


def _altered(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} was altered after the run was registered in it ({why}): put the original back, or run again in "
        "another folder (--out)"
    )


def _differences(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Dotted name, what is registered and what is asked, for each value that differs."""
    if isinstance(there, dict) and isinstance(here, dict):
        known, asked = cast(dict[str, Any], there), cast(dict[str, Any], here)
        for key in [*known, *(key for key in asked if key not in known)]:
            yield from _differences(known.get(key), asked.get(key), f"{name}.{key}" if name else key)
    elif there != here:
        yield name, _short(there), _short(here)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: Any) -> Any:
    """A setting as JSON holds it, so it compares equal to what is read back."""
    if isinstance(value, Path):
        return {"file": value.name, "sha256": sha256_of(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in cast(Mapping[object, Any], value).items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(part) for part in cast(frozenset[Any], value))
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in cast(Sequence[Any], value)]
    return value


def _sha256(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
