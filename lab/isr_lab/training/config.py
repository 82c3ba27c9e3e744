"""Settings of a training run, and the named presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isr_lab.training.mixture import Phase
from isr_rag.core.scorer import Layout
from isr_rag.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Settings of a run.

    Attributes:
        base: folder of the base model, or a Hub name.
        train: JSONL files of slice items to train on.
        validation: JSONL files of slice items to measure progress on.
        out: folder of the run: checkpoint, log, adapter.
        minutes: training time of the whole run over all resumes; the learning rate reaches zero at its end.
        epochs: passes over the data instead of `minutes`.
        layout: how the model sees the evidence.
        rank: of the low-rank change.
        alpha: the change is scaled by `alpha / rank`.
        dropout: of the adapter.
        first_layer: layers below are left alone.
        learning_rate: the highest.
        warmup: share of the run over which the rate rises; a cosine to zero follows.
        weight_decay: AdamW's.
        tokens: computed tokens of one process's batch.
        accumulate: batches of each process per step.
        workers: processes on this machine, each with its share of the cores.
        smoothing: label smoothing.
        phases: what is drawn from which file of `train`, and when (layouts late and row); none: passes over all items.
        margin: factor of the logistic ranking loss of a batch's twins.
        averaging: decay per step of the running average of the trained values that is saved as `adapter`; 0 saves
            the last values.
        fixed_order: keep every item's own chunk order (for the comparison in the full layout).
        nf4: load the base model in 4 bits (CUDA, through bitsandbytes).
        start: folder of an adapter to go on from, of the same rank and layers; without one the change begins at zero.
        validation_items: how many, spread over tasks and sources.
        validate_minutes: time between validations.
        checkpoint_minutes: time between checkpoints.
        seed: of adapter, data order and shown chunks.

    Raises:
        ConfigurationError: if not exactly one of `minutes` and `epochs` is given, or a number is out of range.
    """

    base: Path | str
    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    out: Path
    minutes: float | None = None
    epochs: float | None = None
    layout: Layout = "late"
    rank: int = 32
    alpha: float = 64.0
    dropout: float = 0.0
    first_layer: int = 0
    learning_rate: float = 5e-4
    warmup: float = 0.03
    weight_decay: float = 0.01
    tokens: int = 1400
    accumulate: int = 1
    workers: int = 1
    smoothing: float = 0.0
    phases: tuple[Phase, ...] = ()
    margin: float = 0.0
    averaging: float = 0.0
    fixed_order: bool = False
    nf4: bool = False
    start: Path | None = None
    validation_items: int = 200
    validate_minutes: float = 10.0
    checkpoint_minutes: float = 5.0
    seed: int = 42

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.epochs is None):
            raise ConfigurationError("give either minutes or epochs: the schedule needs to know its end")
        if not self.train:
            raise ConfigurationError("there is nothing to train on: give at least one file of items")
        positive = {
            "minutes": self.minutes,
            "epochs": self.epochs,
            "rank": self.rank,
            "learning_rate": self.learning_rate,
            "tokens": self.tokens,
            "accumulate": self.accumulate,
            "workers": self.workers,
        }
        for name, value in positive.items():
            if value is not None and value <= 0:
                raise ConfigurationError(f"{name} must be positive, not {value}")
        if self.phases and (self.layout not in ("late", "row") or self.minutes is None):
            raise ConfigurationError("phases need the layout late or row, and a run bounded by minutes")
        known = {path.name for path in self.train}
        for phase in self.phases:
            if not 0 < phase.until <= 1 or not any(phase.weights.get(name, 0) > 0 for name in known):
                raise ConfigurationError(
                    f"a phase ends at a share in (0, 1] and draws from {sorted(known)}, not {phase}"
                )
        if self.margin < 0 or not 0 <= self.averaging < 1:
            raise ConfigurationError("margin must not be negative, averaging is a decay in [0, 1)")
        if not 0 <= self.smoothing < 1 or not 0 <= self.warmup < 1:
            raise ConfigurationError("smoothing and warmup are shares in [0, 1)")


PRESETS: dict[str, dict[str, Any]] = {
    "ours": {
        "layout": "late",
        "rank": 32,
        "alpha": 64.0,
        "first_layer": 8,
        "learning_rate": 5e-4,
        "tokens": 1100,
        "workers": 2,
        "smoothing": 0.02,
        "margin": 0.3,
        "averaging": 0.97,
    },
    "paper-gemma": {  # Appendix H.6
        "layout": "full",
        "rank": 32,
        "alpha": 64.0,
        "dropout": 0.05,
        "learning_rate": 1.5e-5,
        "warmup": 0.03,
        "weight_decay": 0.1,
        "epochs": 1.0,
        "accumulate": 64,
        "seed": 42,
    },
}
"""Settings by name: those of the judge that ships (from the base; going on takes a lower rate), and the paper's."""


def preset(name: str, **settings: Any) -> TrainConfig:
    """A preset with further settings, which win over it.

    Raises:
        ConfigurationError: if there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigurationError(f"there is no preset {name!r}; choose one of {sorted(PRESETS)}")
    chosen = {**PRESETS[name], **settings}
    if settings.get("minutes") is not None and "epochs" not in settings:
        chosen.pop("epochs", None)
    return TrainConfig(**chosen)
