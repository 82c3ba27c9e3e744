"""Score slice items with any scorer, item by item on disk, and sum the figures up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from isr_lab.metrics import auroc, brier, expected_calibration_error, risk_coverage_curve
from isr_lab.slice.asking import predicate
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_lab.training.data import unmarked_sources
from isr_rag.core.evidence import Chunk
from isr_rag.core.scorer import TOPIC_LAST, Scorer, ScoreRequest


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """One item with its probability of "yes"; `alone`: the highest of any chunk by itself, where that was asked."""

    id: str
    task: str
    source: str
    kind: str
    multi_hop: bool
    template: str
    n: int
    label: int
    q: float
    alone: float | None = None


def first_chunks(item: SliceItem, most: int | None) -> list[SliceChunk]:
    """All support and the first other chunks, `most` in all (None: every chunk), in the item's own order."""
    if most is None:
        return list(item.chunks)
    room = max(most - sum(chunk.is_support for chunk in item.chunks), 0)
    chosen: list[SliceChunk] = []
    for chunk in item.chunks:
        if chunk.is_support or room:
            chosen.append(chunk)
            room -= not chunk.is_support
    return chosen


def shown(item: SliceItem, most: int | None) -> list[Chunk]:
    """`first_chunks` as evidence."""
    return [Chunk(chunk.text, chunk.title) for chunk in first_chunks(item, most)]


def between(low: int, high: int) -> Callable[[SliceItem], int]:
    """How many chunks an item shows: spread evenly over `low` to `high` by its id."""
    from hashlib import sha256

    return lambda item: low + int.from_bytes(sha256(item.id.encode()).digest()[:4], "big") % (high - low + 1)


def evaluate(
    scorer: Scorer,
    items: Iterable[SliceItem],
    out: Path,
    *,
    chunks: Callable[[SliceItem], int] | None = None,
    batch: int = 16,
    alone: bool = False,
) -> list[ScoredItem]:
    """Score items in the order in which they come and append each batch to `out` (JSONL).

    What `out` holds already is not scored again, so an interrupted evaluation resumes.

    Args:
        scorer: any scorer.
        items: what to score.
        out: a `ScoredItem` a line.
        chunks: how many chunks an item shows at most; None for 3 to 6, the lengths the figures are stated for.
            Items of a source that does not mark its support show all.
        batch: items per call of the scorer.
        alone: also have each chunk read by itself.

    Returns:
        The scored items, those read from `out` included.
    """
    most = chunks or between(3, 6)
    done = {scored.id: scored for scored in read_scored(out)} if out.exists() else {}
    wanted = list(items)
    whole = unmarked_sources(wanted)
    missing = [item for item in wanted if item.id not in done]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as lines:
        for start in range(0, len(missing), batch):
            some = missing[start : start + batch]
            for scored in _score(scorer, some, lambda item: None if item.source in whole else most(item), alone):
                done[scored.id] = scored
                lines.write(json.dumps(asdict(scored), ensure_ascii=False) + "\n")
            lines.flush()
    return [done[item.id] for item in wanted]


def read_scored(path: Path) -> Iterator[ScoredItem]:
    """The items that `evaluate` wrote."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield ScoredItem(**json.loads(line))


def _score(
    scorer: Scorer, items: Sequence[SliceItem], most: Callable[[SliceItem], int | None], alone: bool
) -> Iterator[ScoredItem]:
    requests: list[ScoreRequest] = []
    counts: list[int] = []
    for item in items:
        evidence = shown(item, most(item))
        parts = [evidence, *([chunk] for chunk in evidence if alone and len(evidence) > 1)]
        prompts = [predicate(item).render(part, topic_first=scorer.layout not in TOPIC_LAST) for part in parts]
        requests += [ScoreRequest(prompt, (tuple(range(len(prompt.chunks))),)) for prompt in prompts]
        counts.append(len(prompts))
    found = iter(zip(requests, scorer.score(requests), strict=True))
    for item, count in zip(items, counts, strict=True):
        own = list(islice(found, count))
        q, *each = [float(np.exp(scores.logprobs[0, 0])) for _, scores in own]
        yield ScoredItem(
            id=item.id,
            task=item.task,
            source=item.source,
            kind=item.kind,
            multi_hop=item.multi_hop,
            template=predicate(item).template,
            n=len(own[0][0].prompt.chunks),
            label=item.label,
            q=q,
            alone=max(each, default=q) if alone else None,
        )


def summary(scored: Sequence[ScoredItem]) -> dict[str, dict[str, float]]:
    """Figures for all items, each task, each task and source, and multi-hop items by themselves.

    `auroc` and `balanced_accuracy` are left out where there is one class only.
    """
    parts: dict[str, list[ScoredItem]] = {"all": list(scored)}
    for one in scored:
        for name in (one.task, f"{one.task}/{one.source}", *(["multi-hop"] if one.multi_hop else [])):
            parts.setdefault(name, []).append(one)
    verdicts = [one for one in scored if one.task == "claim" and one.kind in ("supported", "refuted")]
    if verdicts:
        parts["claim: supported or refuted"] = verdicts
    return {name: _figures(members) for name, members in sorted(parts.items())}


def _figures(members: Sequence[ScoredItem]) -> dict[str, float]:
    q = np.asarray([one.q for one in members])
    labels = np.asarray([one.label for one in members])
    found = {
        "n": float(len(members)),
        "supported": float(labels.mean()),
        "accuracy": float(np.mean((q >= 0.5) == (labels == 1))),
        "brier": brier(q, labels),
        "ece": expected_calibration_error(q, labels),
    }
    if 0 < labels.sum() < len(labels):
        found["auroc"] = auroc(q, labels)
        said = q >= 0.5
        found["balanced_accuracy"] = float((said[labels == 1].mean() + (~said[labels == 0]).mean()) / 2)
    surest = max(1, round(0.2 * len(members)))
    found["precision_surest_fifth"] = 1.0 - float(risk_coverage_curve(q, labels).errors([surest])[0]) / surest
    return {name: round(value, 4) for name, value in found.items()}
