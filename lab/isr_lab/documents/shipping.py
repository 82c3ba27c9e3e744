"""From trained weights to what ships: the judge's scores of labelled items, its calibrations, their report.

Scores are kept in a folder of their own, so a stopped call goes on, and processes can share the work.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isr_lab.documents.records import read_lines
from isr_lab.documents.traffic import LOOP_DEPTHS
from isr_lab.loops import LoopRecord, with_loops
from isr_rag import ISRGate, Orderings
from isr_rag._util.files import write_atomically
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord, TrainingHashes
from isr_rag.errors import ConfigurationError
from isr_rag.gate.labelled import calibrate, check_labelled, item_key, score_labelled
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import FOCUS_WORDS, embedded_scorer, model_directory
from isr_rag.scorers.local.adapter import CONFIG, WEIGHTS

TARGETS = ((0.05, 0.1), (0.1, 0.1), (0.2, 0.1))
"""(h*, delta) of the Learn-then-Test thresholds."""
TRAINED = "trained.u64"
"""File of the hashes of what an adapter was trained on."""
M = 6
"""Orders of the judge that reads in a row."""
TASKS = {"supported-answer/1": "draft", "sufficient/1": "question alone", "supported-claim/1": "claim"}
ADVERSARIAL = 128
"""Items of each task that the adversarial calibration is fitted on."""
FILES = {"calibration": "calibration", "adversarial": "adversarial", "permuted": "row"}
"""Calibration file -> the set of items that it is fitted on."""
SEARCH = f"BM25, {min(LOOP_DEPTHS)} to {max(LOOP_DEPTHS)} chunks, then twice as many"
"""How the loops retrieve that `calibration` is fitted on, too."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Items of one set with their scores, and the kind of case of each by its id."""

    records: list[CalibrationRecord]
    kinds: dict[str, str]


def mean_weights(adapters: Sequence[Path], out: Path) -> None:
    """Write the mean of adapters of one shape, with the description that ties it to the embedded base model.

    Raises:
        ConfigurationError: if the adapters have other weights than one another, or `out` holds another mean.
    """
    import torch
    from safetensors.torch import load_file, save

    from isr_lab.training.network import write_description

    parts = [load_file(folder / WEIGHTS) for folder in adapters]
    if any({k: v.shape for k, v in part.items()} != {k: v.shape for k, v in parts[0].items()} for part in parts):
        raise ConfigurationError(f"the adapters have different weights: {', '.join(map(str, adapters))}")
    mean = {k: torch.stack([part[k].float() for part in parts]).mean(0).to(v.dtype) for k, v in parts[0].items()}
    data = save({k: v.contiguous() for k, v in mean.items()})
    if (out / WEIGHTS).exists():
        if (out / WEIGHTS).read_bytes() != data:
            raise ConfigurationError(f"{out} holds scores of another adapter: give an empty folder")
        return
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((adapters[0] / CONFIG).read_text("utf-8"))
    config["base_model_name_or_path"] = model_directory().name
    write_atomically(out / CONFIG, json.dumps(config, indent=2) + "\n")
    write_atomically(out / WEIGHTS, data)
    write_description(out, "late", model_directory())


def items_by_set(
    documents: Path, stages: Path, chosen: Iterable[Mapping[str, Any]], training: TrainingHashes
) -> dict[str, list[dict[str, Any]]]:
    """The labelled items of each set, as `score_labelled` takes them.

    Args:
        documents: what `isr-lab documents` wrote; all items of its `calibration.jsonl`, `loops.jsonl` and
            `test.jsonl` are taken.
        stages: what `isr-lab mix curriculum` wrote; `ADVERSARIAL` calibration items of each task are drawn from it.
        chosen: the scores of the adapter before, which say what else belongs to a set: 414 pairs of the checklist,
            and the items that are read in a row.
        training: of everything that was trained on.

    Raises:
        ConfigurationError: if items of a set are not there.
    """
    ids: dict[str, set[str]] = {}
    for line in chosen:
        ids.setdefault(line["set"], set()).add(line["id"])
    calibration = list(read_lines(documents / "calibration.jsonl"))
    checklist = read_lines(documents / "checklist.jsonl")
    known = {*training.values.tolist()}
    adversarial: list[dict[str, Any]] = []
    for path in sorted(stages.glob("calib_*.jsonl")):
        own = (one for one in read_lines(path) if known.isdisjoint(TrainingHashes.of(_identities(one)).values.tolist()))
        adversarial += sorted(map(_plain, own), key=lambda one: hashlib.sha256(one["id"].encode()).digest())[
            :ADVERSARIAL
        ]
    found = {
        "checklist": [item for item in checklist if item["id"] in ids["checklist"]],
        "calibration": calibration,
        "adversarial": adversarial,
        "row": [item for item in calibration if item["id"] in ids["row"]],
        "loops": list(read_lines(documents / "loops.jsonl")),
        "test": list(read_lines(documents / "test.jsonl")),
    }
    for name in ("checklist", "row"):
        if missing := ids[name] - {item["id"] for item in found[name]}:
            raise ConfigurationError(f"{len(missing)} items of {name} are not in {documents}, as {min(missing)}")
    return found


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of the slice or the mix as a gate is asked about it."""
    judged = {name: item[name] for name in ("claim", "question", "answer") if item.get(name)}
    return {
        "id": f"{item['source']}/{item['id']}",
        "label": item["label"],
        "group": f"{item['source']}/{item['group']}",
        "source": item["source"],
        "kind": item["kind"],
        "evidence": [{"text": chunk["text"], "title": chunk.get("title")} for chunk in item["chunks"]],
        **judged,
    }


def gate_of(adapter: Path, name: str, device: str = "cpu") -> ISRGate:
    """The gate whose scores of a set of items are wanted: `row` reads in a row, the others side by side."""
    scorer = embedded_scorer(adapter, in_a_row=name == "row", device=device)
    orderings = Orderings(m=M) if name == "row" else Orderings()
    return ISRGate(scorer=scorer, reference=Oracle(1.0), max_words=FOCUS_WORDS, orderings=orderings)


def score(
    gate: ISRGate, items: Sequence[dict[str, Any]], work: Path, name: str, part: tuple[int, int] = (1, 1)
) -> Iterator[int]:
    """Score part i of n of the items, group by group in a fixed random order, and say how many are done.

    Each part appends to a file of its own in `work`; what any file there holds already is not scored again.
    """
    first, parts = part
    done = {line["id"] for line in kept(work, name)}
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        groups.setdefault(str(item["group"]), []).append(item)
    own = sorted(groups, key=lambda group: hashlib.sha256(group.encode()).digest())[first - 1 :: parts]
    work.mkdir(parents=True, exist_ok=True)
    count = 0
    with (work / f"{name}.{first}-{parts}.jsonl").open("a", encoding="utf-8") as file:
        for group in own:
            missing = [item for item in groups[group] if str(item["id"]) not in done]
            for one in score_labelled(gate, missing):
                line = {key: getattr(one, key) for key in ("id", "predicate", "q_bar", "q", "chunks", "alone")}
                file.write(json.dumps(line) + "\n")
            file.flush()
            count += len(groups[group])
            yield count


def kept(work: Path, name: str) -> Iterator[dict[str, Any]]:
    """The scores of a set that the parts wrote, each once."""
    seen: set[str] = set()
    for path in sorted(work.glob(f"{name}.*-*.jsonl")):
        for line in read_lines(path):
            if line["id"] not in seen:
                seen.add(line["id"])
                yield line


def joined(items: Sequence[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]) -> Scored:
    """Items with their scores.

    Raises:
        ConfigurationError: if an item was not scored.
    """
    by_id = {line["id"]: line for line in scores}
    if missing := [item["id"] for item in items if str(item["id"]) not in by_id]:
        raise ConfigurationError(f"{len(missing)} items were not scored, among them {missing[0]}")
    records: list[CalibrationRecord] = []
    for item, (text, evidence) in zip(items, check_labelled(items), strict=True):
        line = by_id[str(item["id"])]
        records.append(
            CalibrationRecord(
                id=line["id"],
                predicate=line["predicate"],
                q_bar=line["q_bar"],
                label=int(item["label"]),
                text=text,
                q=tuple(line["q"]),
                group=str(item["group"]),
                source=str(item["source"]),
                chunks=line["chunks"],
                language=" ".join(evidence),
                alone=line["alone"],
            )
        )
    return Scored(records, {str(item["id"]): item["kind"] for item in items})


def loop_records(records: Iterable[CalibrationRecord]) -> list[LoopRecord]:
    """Loops of the scores of their rounds, whose ids end in their numbers."""
    loops: dict[str, list[CalibrationRecord]] = {}
    for record in sorted(records, key=lambda record: record.id):
        loops.setdefault(record.id.rpartition("@")[0], []).append(record)
    return [
        LoopRecord(
            id=name,
            predicate=rounds[0].predicate,
            q_bar=tuple(one.q_bar for one in rounds),
            labels=tuple(one.label for one in rounds),
            alone=tuple(one.alone for one in rounds if one.alone is not None),
        )
        for name, rounds in loops.items()
    ]


def training_hashes(paths: Iterable[Path], before: TrainingHashes) -> TrainingHashes:
    """Hashes of ids and of judged texts with their evidence, of all items in these files and of those before."""
    new = TrainingHashes.of(text for path in paths for item in read_lines(path) for text in _identities(item))
    return TrainingHashes(np.union1d(before.values, new.values))


def _identities(item: Mapping[str, Any]) -> Iterator[str]:
    query = item.get("claim") or " ".join(part for part in (item["question"], item.get("answer")) if part)
    yield item["id"]
    yield item_key(query, [chunk["text"] for chunk in item["chunks"]])


def ship(
    adapter: Path, scored: Mapping[str, Scored], out: Path, training: TrainingHashes
) -> dict[str, CalibrationArtefact]:
    """Write adapter, calibrations and hashes, or nothing; returns the calibrations by the names of their files.

    Args:
        adapter: what was scored.
        scored: the sets of `items_by_set`.
        out: the folder that gates read the adapter from.
        training: of everything that the adapter was trained on.

    Raises:
        CalibrationError: if items do not suffice, or were trained on.
    """
    fitted = {
        name: calibrate(gate_of(adapter, items), scored[items].records, targets=TARGETS, training=training)
        for name, items in FILES.items()
    }
    loops = loop_records(scored["loops"].records)
    fitted["calibration"] = with_loops(fitted["calibration"], loops, retriever=SEARCH, training=training)
    out.mkdir(parents=True, exist_ok=True)
    for path in adapter.iterdir():
        write_atomically(out / path.name, path.read_bytes())
    training.save(out / TRAINED)
    for name, artefact in fitted.items():
        artefact.save(out / f"{name}.json")
    return fitted


def write_scores(scored: Mapping[str, Scored], path: Path) -> None:
    """Write all scores without their texts; the same bytes for the same scores."""
    lines: list[str] = []
    for name in sorted(scored):
        for one in sorted(scored[name].records, key=lambda record: record.id):
            told = {key: getattr(one, key) for key in ("id", "predicate", "q_bar", "alone", "label", "group", "source")}
            told |= {"chunks": one.chunks, "kind": scored[name].kinds[one.id], "set": name}
            lines.append(json.dumps(told | ({"q": one.q} if name == "row" else {})) + "\n")
    write_atomically(path, gzip.compress("".join(lines).encode(), mtime=0))
