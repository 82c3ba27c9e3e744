"""Train an adjudicator on slice items: resumable, several processes on one machine, CUDA where there is one."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from isr_lab.slice.asking import with_support
from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem
from isr_lab.training.config import TrainConfig
from isr_lab.training.data import Example, data_hash, label_ids, packed, passes, segments, unmarked_sources
from isr_lab.training.evaluate import summary
from isr_lab.training.mixture import Drawn, Mixture, pieces, twins
from isr_lab.training.network import PeftNetwork, write_description
from isr_rag._util.files import write_json
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.machine import usable_cores

_SHOWN = 6  # chunks a validation item shows


@dataclass(slots=True)
class TrainingProgress:
    """Where a run stands; kept in its checkpoint.

    Attributes:
        elapsed: seconds of training over all resumes.
        steps: updates made.
        labels: examples seen.
        tokens: tokens computed.
        epoch: passes over the data begun before the present one.
        batch: batches of the present pass that are done.
        data: hash of the training items.
    """

    elapsed: float = 0.0
    steps: int = 0
    labels: int = 0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0
    data: str = ""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to: where it stands, and the figures of its last validation by task and source."""

    progress: TrainingProgress
    validation: dict[str, dict[str, float]]


def done_share(config: TrainConfig, progress: TrainingProgress, items: int) -> float:
    """How much of the run is done, in [0, 1]."""
    if config.minutes is not None:
        return min(progress.elapsed / (60 * config.minutes), 1.0)
    assert config.epochs is not None
    return min(progress.labels / (config.epochs * items), 1.0)


def learning_rate(config: TrainConfig, share: float) -> float:
    """A linear rise over `warmup`, then a cosine to zero at the end of the run."""
    if share < config.warmup:
        return config.learning_rate * max(share / config.warmup, 0.02)
    return config.learning_rate * 0.5 * (1 + float(np.cos(np.pi * (share - config.warmup) / (1 - config.warmup))))


class _Run:
    """One process of a run."""

    def __init__(self, config: TrainConfig, rank: int) -> None:
        from transformers import AutoTokenizer

        self.config, self.rank = config, rank
        self.encoder = PromptEncoder(AutoTokenizer.from_pretrained(config.base))
        self.items = list(read_items(*config.train))
        if not self.items:
            raise ConfigurationError(f"there are no items in {', '.join(map(str, config.train))}")
        self.unmarked = unmarked_sources(self.items)
        self.held = spread(list(read_items(*config.validation)), config.validation_items)
        self.network = PeftNetwork(
            config.base,
            config.rank,
            config.alpha,
            config.dropout,
            config.first_layer,
            label_ids(self.items[0], self.encoder),
            config.seed,
            nf4=config.nf4,
        )
        if config.start is not None:
            self.network.load(config.start)
        self.parameters = self.network.parameters()
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=config.weight_decay, fused=True
        )
        self.average = [p.detach().clone() for p in self.parameters] if config.averaging else []
        self.progress = TrainingProgress(data=data_hash(self.items))
        self._resume()

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return done_share(self.config, self.progress, len(self.items))

    @property
    def _checkpoint(self) -> Path:
        return self.config.out / "checkpoint.pt"

    def _resume(self) -> None:
        for pattern in ("*/.adapter_*", "*/.isr_rag.json.*", ".settings.json.*") if self.rank == 0 else ():
            for stale in self.config.out.glob(pattern):  # of a process that was killed while it wrote
                stale.unlink()
        if not self._checkpoint.exists():
            return
        state = torch.load(self._checkpoint, weights_only=True)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(value)
            for average, value in zip(self.average, state["average"], strict=True):
                average.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        progress = TrainingProgress(**state["progress"])
        if progress.data != self.progress.data:
            # Other data: their passes begin anew, under a seed that was not used yet.
            progress.data, progress.epoch, progress.batch = self.progress.data, progress.epoch + 1, 0
        self.progress = progress

    def save(self) -> None:
        """Write the checkpoint and the adapter (first process only)."""
        if self.rank:
            return
        state = {
            "parameters": [p.detach() for p in self.parameters],
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "progress": asdict(self.progress),
        }
        temporary = self._checkpoint.with_suffix(".part")
        torch.save(state, temporary)
        temporary.replace(self._checkpoint)
        with self._averaged():
            self.network.save(self.config.out / "adapter")
        if Path(self.config.base).is_dir():
            write_description(self.config.out / "adapter", self.config.layout, Path(self.config.base))

    @contextmanager
    def _averaged(self) -> Generator[None, None, None]:
        """The running average in place of the last values, where one is kept."""
        last = [p.detach().clone() for p in self.parameters] if self.average else []
        with torch.no_grad():
            for parameter, value in zip(self.parameters if last else (), self.average, strict=True):
                parameter.copy_(value)
            yield
            for parameter, value in zip(self.parameters if last else (), last, strict=True):
                parameter.copy_(value)

    def log(self, **entry: Any) -> None:
        """Append one line to the run's log (first process only)."""
        if self.rank == 0:
            with (self.config.out / "log.jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"at": round(time.time()), **entry}) + "\n")

    def _drawn(self) -> Iterator[list[Example]]:
        """This process's batches of the phase that the run is in; each resume draws in another order."""
        config = self.config
        sets: dict[str, Drawn] = {}
        for path in config.train:
            items, order = list(read_items(path)), random.Random(f"{config.seed}/{self.progress.steps}")
            sets[path.name] = Drawn(pieces(items, order, self.rank, config.workers))
        first = config.phases[0]
        rng = random.Random(f"{config.seed}/{self.rank}/{self.progress.steps}")
        mixture = Mixture(
            self.encoder, sets, first.weights, first.showing, config.tokens, rng, self.unmarked, config.layout
        )
        for batch in mixture:
            yield batch
            share = self.share
            phase = next((phase for phase in config.phases if share < phase.until), config.phases[-1])
            mixture.weights, mixture.showing = phase.weights, phase.showing

    def batches(self) -> Iterator[list[Example]]:
        """This process's batches from where the run stands, pass after pass."""
        config, progress = self.config, self.progress
        if config.phases:
            yield from self._drawn()
        while True:
            seed, skip = config.seed + 1000 * progress.epoch, progress.batch
            stream = passes(self.items, self.encoder, config.layout, seed, config.tokens, fixed=config.fixed_order)
            mine: list[Example] = []
            index = -1
            for index, batch in enumerate(stream):
                if index % config.workers == self.rank:
                    mine = batch
                # Whole rounds only, so all processes take the same number of steps.
                if index % config.workers == config.workers - 1 and index >= skip:
                    progress.batch = index + 1
                    yield mine
            if index + 1 < config.workers:
                raise ConfigurationError("the data make fewer batches than there are processes: lower tokens")
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def step(self, batches: list[list[Example]]) -> tuple[float, float]:
        """One update; returns the mean loss and accuracy of this process's examples."""
        config = self.config
        total, right, count = 0.0, 0, sum(map(len, batches))
        for parameter in self.parameters:
            assert parameter.grad is not None
            parameter.grad.zero_()
        for batch in batches:
            pack = packed([example.segments for example in batch], config.layout)
            labels = torch.tensor([float(example.label) for example in batch])
            targets = labels * (1 - config.smoothing) + config.smoothing / 2
            pairs = twins(batch) if config.margin else []
            ranked = (torch.tensor(pairs), config.margin / max(count / 2, len(pairs))) if pairs else None
            loss, z = self.network.loss_and_grad(pack, targets, torch.full_like(labels, 1 / count), ranked)
            total += loss
            right += int(((z > 0) == (labels > 0.5)).sum())
            self.progress.tokens += len(pack.input_ids) * config.workers
        self._average_gradients()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.share)
        self.optimizer.step()
        if self.average:
            decay = min(config.averaging, (self.progress.steps + 1) / (self.progress.steps + 10))
            with torch.no_grad():
                for average, parameter in zip(self.average, self.parameters, strict=True):
                    average.lerp_(parameter, 1 - decay)
        self.progress.labels += round(_mean(count, config.workers) * config.workers)
        self.progress.steps += 1
        return total, right / count

    def _average_gradients(self) -> None:
        if self.config.workers == 1:
            return
        grads = [p.grad for p in self.parameters if p.grad is not None]
        flat = torch.cat([g.view(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= self.config.workers
        for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view_as(grad))

    def validate(self) -> dict[str, dict[str, float]]:
        """Figures by task and source on the fixed validation items."""
        config = self.config
        whole = unmarked_sources(self.held)
        logits: dict[int, float] = {}
        mine = list(range(self.rank, len(self.held), config.workers))
        for start in range(0, len(mine), 16):
            some = mine[start : start + 16]
            prompts: list[EncodedPrompt] = []
            for item in (self.held[index] for index in some):
                shown = item.chunks if item.source in whole else with_support(item.chunks, _SHOWN)
                prompts.append(segments(item, shown, self.encoder, config.layout))
            logits.update(zip(some, self.network.logits(packed(prompts, config.layout)).tolist(), strict=True))
        if config.workers > 1:
            gathered: list[Any] = [None] * config.workers
            dist.all_gather_object(gathered, logits)
            logits = {index: z for part in gathered for index, z in part.items()}
        q = [float(1 / (1 + np.exp(-logits[index]))) for index in range(len(self.held))]
        found = summary(list(zip(self.held, q, strict=True)))
        self.log(kind="validation", **asdict(self.progress), figures=found)
        return found

    def run(self) -> TrainResult:
        """Train to the end of the schedule."""
        config, progress = self.config, self.progress
        begun, before = time.monotonic(), progress.elapsed
        checked = saved = progress.elapsed
        stream = self.batches()
        seen: list[tuple[float, float]] = []
        while self.share < 1:
            seen.append(self.step([next(stream) for _ in range(config.accumulate)]))
            progress.elapsed = _first(before + time.monotonic() - begun, config.workers)
            if progress.steps % 10 == 0:
                loss, accuracy = (round(float(value), 4) for value in np.mean(seen, axis=0))
                rate = learning_rate(config, self.share)
                self.log(kind="train", **asdict(progress), loss=loss, accuracy=accuracy, rate=rate)
                seen = []
            if self.held and progress.elapsed - checked > 60 * config.validate_minutes:
                self.validate()
                checked = progress.elapsed
            if progress.elapsed - saved > 60 * config.checkpoint_minutes:
                self.save()
                saved = progress.elapsed
        self.save()
        return TrainResult(progress, self.validate() if self.held else {})


def _first(value: float, workers: int) -> float:
    """The first process's value, so all stop at the same step."""
    if workers == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


def _mean(value: float, workers: int) -> float:
    if workers == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(shared)
    return float(shared) / workers


def spread(items: list[SliceItem], count: int) -> list[SliceItem]:
    """A fixed selection of at most `count` items, spread over tasks and sources, those of one group together.

    Items of a group are about the same chunks, which are computed once where they share a pack.
    """
    by_source: dict[tuple[str, str], list[SliceItem]] = {}
    for item in sorted(items, key=lambda item: (hashlib.sha256(item.group.encode()).digest(), item.id)):
        by_source.setdefault((item.task, item.source), []).append(item)
    chosen: list[SliceItem] = []
    depth = 0
    while len(chosen) < min(count, len(items)):
        chosen += [members[depth] for _, members in sorted(by_source.items()) if depth < len(members)]
        depth += 1
    return sorted(chosen[:count], key=lambda item: (item.source, item.group, item.id))


def _work(rank: int, config: TrainConfig, folder: str) -> None:
    """One of several processes; the first leaves its result in the folder where they meet."""
    torch.set_num_threads(max(1, usable_cores() // config.workers))
    meeting = Path(folder, "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=config.workers)
    result = _Run(config, rank).run()
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "result.json").write_text(json.dumps(asdict(result)), "utf-8")


def train(config: TrainConfig) -> TrainResult:
    """Train to the end of the schedule, from the last checkpoint in `config.out` where there is one.

    With `epochs` a run that is interrupted and resumed visits the same batches as an uninterrupted one, and its weights
    agree with that one's up to rounding. With `phases` it goes on with others, and with `minutes` the learning rate
    follows the clock.

    Raises:
        ConfigurationError: if the settings do not fit the model, the machine or the data.
        InvalidInputError: for a line of the data that is not an item.
    """
    config.out.mkdir(parents=True, exist_ok=True)
    write_json(config.out / "settings.json", json.loads(json.dumps(asdict(config), default=str)))
    if config.workers == 1:
        return _Run(config, 0).run()
    from torch.multiprocessing.spawn import spawn

    # Nothing but the workers, which end with this process, however it ends: a manager would outlive it.
    with tempfile.TemporaryDirectory() as folder:
        spawn(_work, (config, folder), nprocs=config.workers)
        found = json.loads(Path(folder, "result.json").read_text("utf-8"))
    return TrainResult(TrainingProgress(**found["progress"]), found["validation"])
