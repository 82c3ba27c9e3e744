"""What is drawn, asked and cut out ahead means the same where it is used."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.scorers import tiny

from isr_lab.elsewhere import asked, base, drawn, train
from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem
from isr_lab.training.data import packed
from isr_rag import ISRGate, Orderings
from isr_rag.calibration import CalibrationRecord
from isr_rag.core.scorer import Layout, Scorer
from isr_rag.errors import ConfigurationError
from isr_rag.gate.labelled import score_labelled
from isr_rag.references import Oracle
from isr_rag.scorers.local.encoding import PromptEncoder

ITEMS: list[dict[str, Any]] = [
    {"id": f"{town}-{label}", "label": label, "claim": f"Town {town} has {7 + label} gates.", "evidence": evidence}
    for town in range(3)
    for label in (0, 1)
    for evidence in [[f"Town {town} has 8 gates.", f"Town {town} lies on a hill.", "Lyon is a city."]]
]


def made(folder: Path) -> Path:
    """The items as a file of the mixture."""
    items = [
        SliceItem(
            id=one["id"],
            source="made",
            split="train",
            group=one["id"].split("-")[0],
            claim=one["claim"],
            label=one["label"],
            kind="supported" if one["label"] else "refuted",
            chunks=tuple(SliceChunk(text=text, is_support=i == 0) for i, text in enumerate(one["evidence"])),
            provenance=Provenance(dataset="made", file="none", record=one["id"], license="CC0-1.0"),
        )
        for one in ITEMS
    ]
    path = folder / "made.jsonl"
    path.write_text("".join(f"{item.model_dump_json()}\n" for item in items), "utf-8")
    return path


@pytest.mark.parametrize("layout", ["late", "row", "full"])
def test_units_are_read_as_they_were_drawn(tmp_path: Path, layout: Layout) -> None:
    encoder = PromptEncoder(tiny.tokenizer("chatml"))
    drawing = drawn.draw(encoder, {made(tmp_path): 1.0}, layout, 300, 0)
    units = list(islice(drawing, 5))
    drawn.write(tmp_path / "units.npz", units, layout)
    found = drawn.Units(tmp_path / "units.npz")
    assert len(found) == 5 and found.layout == layout
    for prompts, labels, pairs in [*units, units[0]]:  # and again from the first
        theirs = found.take()
        assert [(p.head, p.chunks, p.tail) for p in theirs[0]] == [(p.head, p.chunks, p.tail) for p in prompts]
        assert theirs[1] == labels and np.array_equal(theirs[2], pairs)
        assert all(labels[above] == 1 and labels[below] == 0 for above, below in pairs)
    assert any(len(pairs) for _, _, pairs in units)


@pytest.mark.parametrize("layout", ["row", "full"])
def test_where_the_order_is_seen_the_same_chunks_are_read_in_several(tmp_path: Path, layout: Layout) -> None:
    tokenizer = tiny.tokenizer("chatml")
    drawing = drawn.draw(PromptEncoder(tokenizer), {made(tmp_path): 1.0}, layout, 300, 0)
    orders = set()
    for prompts, _, _ in islice(drawing, 10):
        asked_first = ["gates" in tokenizer.decode(one.head) for one in prompts]
        assert asked_first == [layout == "full"] * len(prompts)
        if layout == "row":  # prompts about the same chunks share what they begin with
            assert len(packed(prompts, layout).input_ids) < sum(prompt.length for prompt in prompts)
        orders |= {prompt.chunks for prompt in prompts}
    assert len({frozenset(order) for order in orders}) < len(orders)


@pytest.mark.parametrize("layout", ["late", "row", "full"])
def test_what_was_scored_elsewhere_is_what_scoring_here_gives(tmp_path: Path, layout: Layout) -> None:
    scorer = tiny.scorer("qwen2", layout=layout)

    def scored(by: Scorer) -> list[CalibrationRecord]:
        return score_labelled(ISRGate(scorer=by, reference=Oracle(1.0), orderings=Orderings(m=3)), ITEMS)

    recorder = asked.Recorder(scorer)
    assert all(record.q_bar == 0.5 for record in scored(recorder))
    recorder.asked.write(tmp_path / "asked.pkl")
    again = asked.Asked.read(tmp_path / "asked.pkl")
    np.savez(tmp_path / "answers.npz", odds=asked.score(again, scorer, tokens=200))
    player, want = asked.Player(scorer, tmp_path / "asked.pkl", tmp_path / "answers.npz"), scored(scorer)
    found = scored(player)
    assert [one.q for one in found] == [pytest.approx(one.q, abs=1e-4) for one in want]
    assert [one.alone for one in found] == [pytest.approx(one.alone, abs=1e-4) for one in want]
    with pytest.raises(ConfigurationError, match="record and score it anew"):
        ISRGate(scorer=player, reference=Oracle(1.0)).decide(
            claim="Town 9 has a gate.", evidence=["Town 9 has a gate."]
        )


@pytest.mark.parametrize("layout", ["late", "full"])
def test_a_step_holds_the_labels_and_pairs_of_all_its_units(tmp_path: Path, layout: Layout) -> None:
    drawing = drawn.draw(PromptEncoder(tiny.tokenizer("chatml")), {made(tmp_path): 1.0}, layout, 300, 0)
    units = list(islice(drawing, 4))
    drawn.write(tmp_path / "units.npz", units, layout)
    stream = train.Stream(tmp_path / "units.npz", 1.0, 2)
    for first in (0, 2):
        rows, labels, pairs = stream.step()
        both = units[first : first + 2]
        assert labels.tolist() == [float(label) for _, own, _ in both for label in own]
        assert len(rows.reads) == len(labels) and len(pairs) == sum(len(own) for _, _, own in both)
        assert all(labels[above] == 1 and labels[below] == 0 for above, below in pairs.tolist())


def test_the_base_is_made_of_the_quantised_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    rng = np.random.default_rng(0)
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.1.attn_q.weight": "model.layers.1.self_attn.q_proj.weight",
    }
    stored = {name: gguf.quants.quantize(rng.normal(size=(8, 64)), gguf.GGMLQuantizationType.Q8_0) for name in names}
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen2")
    for name, data in (stored | {"output.weight": stored["token_embd.weight"]}).items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    whole = tmp_path / "whole"
    whole.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (whole / name).write_text(name, "utf-8")
    monkeypatch.setattr(base, "verify", lambda: whole)
    base.take(tmp_path / "model.gguf", tmp_path / "taken")
    monkeypatch.setattr(base, "model_directory", lambda: tmp_path / "made")
    base.make(tmp_path / "taken")
    found = load_file(tmp_path / "made" / "model.safetensors")
    assert found.keys() == set(names.values())
    for name, data in stored.items():
        want = torch.from_numpy(gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q8_0)).to(torch.bfloat16)
        assert torch.equal(found[names[name]], want)
    assert (tmp_path / "made" / "config.json").read_text("utf-8") == "config.json"
