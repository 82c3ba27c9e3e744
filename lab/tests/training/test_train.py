"""Training learns a toy task, resumes exactly, and writes an adapter that the package can load."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.chaos import forked
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from isr_lab.slice.reading import read_items
from isr_lab.slice.schema import SliceItem
from isr_lab.training.config import TrainConfig, preset
from isr_lab.training.data import shown_chunks, unmarked_sources
from isr_lab.training.mixture import Phase
from isr_lab.training.train import learning_rate, spread, train
from isr_rag.errors import ConfigurationError, ModelCorruptError, ModelNotFoundError
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.local.adapter import read_adapter

pytestmark = pytest.mark.slow

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with a byte tokenizer."""
    folder = tmp_path_factory.mktemp("model") / "base"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=TEMPLATE,
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(fast),
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(std=0.12)
    model.save_pretrained(folder)
    return folder


def item(i: int, label: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"i{i}",
        "source": "toy",
        "split": "train",
        "group": f"g{i // 2}",
        "claim": "zzzzzzzzzzzzzzzz" if label else "aaaaaaaaaaaaaaaa",
        "label": label,
        "kind": "supported" if label else "refuted",
        "chunks": [{"text": f"text {i // 2}", "is_support": True}, {"text": f"more {i}"}],
        "provenance": {"dataset": "toy", "file": "toy", "record": str(i), "license": "CC0-1.0"},
        **more,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(item(i, i % 2)) + "\n" for i in range(48)))
    return path


def settings(base: Path, data: Path, out: Path, **more: Any) -> TrainConfig:
    plain: dict[str, Any] = {
        "epochs": 4.0,
        "rank": 4,
        "alpha": 8.0,
        "learning_rate": 2e-2,
        "tokens": 600,
        "validation_items": 16,
    }
    return TrainConfig(base=base, train=(data,), validation=(data,), out=out, **{**plain, **more})


def losses(out: Path) -> list[float]:
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().split("\n") if line]
    return [entry["loss"] for entry in entries if entry["kind"] == "train"]


@pytest.mark.parametrize("layout", ["late", "set", "row", "full"])
def test_a_toy_task_is_learnt_in_every_layout(base: Path, data: Path, tmp_path: Path, layout: Any) -> None:
    result = train(settings(base, data, tmp_path / "run", layout=layout))
    found = losses(tmp_path / "run")
    assert found[-1] < 0.5 * found[0]
    assert result.validation["all"]["auroc"] > 0.95
    adapter = read_adapter(tmp_path / "run" / "adapter")
    assert adapter.layout == layout
    assert adapter.scale == 2.0


@pytest.mark.parametrize("layout", ["late", "row"])
def test_phases_draw_by_weight_and_the_average_is_saved(base: Path, data: Path, tmp_path: Path, layout: str) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(item(i, i % 2, source="other")) + "\n" for i in range(8)))
    phases = (Phase(0.5, {data.name: 1.0}), Phase(1.0, {data.name: 0.5, other.name: 0.5}))
    more = {"phases": phases, "margin": 0.3, "averaging": 0.9, "minutes": 0.15, "epochs": None}
    config = replace(settings(base, data, tmp_path / "run", layout=layout), train=(data, other), **more)
    result = train(config)
    assert result.validation["all"]["auroc"] > 0.95
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    saved = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    assert torch.equal(saved[name].float(), state["average"][-1].to(torch.bfloat16).float())
    assert not torch.equal(state["average"][-1], state["parameters"][-1])
    assert read_adapter(tmp_path / "run" / "adapter").layout == layout


def test_a_resumed_run_of_phases_does_not_begin_with_what_it_saw_first(base: Path, data: Path, tmp_path: Path) -> None:
    from isr_lab.training import train as module

    phases = (Phase(1.0, {data.name: 1.0}),)
    config = replace(settings(base, data, tmp_path / "run"), phases=phases, minutes=1.0, epochs=None)
    (tmp_path / "run").mkdir()
    run = module._Run(config, 0)

    def first() -> list[str]:
        drawn = run._drawn()
        return [example.item.id for _ in range(3) for example in next(drawn)]

    begun = first()
    assert first() == begun
    run.progress.steps = 20
    assert first() != begun


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(base, data, tmp_path / "whole", epochs=3.0)
    train(config)
    from isr_lab.training import train as module

    class Stop(Exception):
        pass

    plain = module._Run.step
    calls = 0

    def interrupted(self: Any, batches: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise Stop
        found = plain(self, batches)
        self.save()
        return found

    monkeypatch.setattr(module._Run, "step", interrupted)
    parts = replace(config, out=tmp_path / "parts")
    with pytest.raises(Stop):
        train(parts)
    monkeypatch.undo()
    train(parts)
    ends = [torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "parts")]
    assert ends[0]["progress"]["steps"] == ends[1]["progress"]["steps"]
    for one, other in zip(ends[0]["parameters"], ends[1]["parameters"], strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def begin(base: Path, data: Path, out: Path, workers: int) -> BaseProcess:
    """A run of its own process, which writes a checkpoint after every step."""
    config = TrainConfig(
        base=base, train=(data,), validation=(), out=out, epochs=2.0, rank=4, alpha=8.0,
        learning_rate=2e-2, tokens=300, checkpoint_minutes=1e-4, workers=workers,
    )  # fmt: skip
    return forked.start(train, config)


def ended(run: BaseProcess) -> int | None:
    run.join()
    return run.exitcode


def everything_is_whole(out: Path) -> None:
    """What a killed run left can be read, or is known to be no adapter yet."""
    if (out / "checkpoint.pt").exists():
        assert torch.load(out / "checkpoint.pt", weights_only=True)["progress"]["steps"] > 0
    for path in (out / "adapter").glob("*.safetensors"):
        load_file(path)
    for path in [*out.glob("*.json"), *(out / "adapter").glob("*.json")]:
        json.loads(path.read_text())
    if (out / "log.jsonl").exists():
        losses(out)
    with suppress(ModelCorruptError, ModelNotFoundError):
        read_adapter(out / "adapter")


@pytest.mark.chaos
def test_a_run_killed_at_random_moments_ends_where_an_uninterrupted_one_does(
    base: Path, data: Path, tmp_path: Path
) -> None:
    driver, begun = begin(base, data, tmp_path / "whole", 1), time.monotonic()
    assert ended(driver) == 0
    longest = time.monotonic() - begun
    chance, whole, out = random.Random(5), tmp_path / "whole", tmp_path / "killed"
    kills, wanted = 0, 50 if os.environ.get("ISR_RAG_CHAOS") == "long" else 4
    while kills < wanted:
        driver = begin(base, data, out, 1)
        time.sleep(chance.uniform(0, longest))
        alive = driver.is_alive()
        driver.kill()
        driver.join()
        everything_is_whole(out)
        if not alive:
            ends_alike(whole, out)
            shutil.rmtree(out)
        else:
            kills += 1
    assert ended(begin(base, data, out, 1)) == 0
    ends_alike(whole, out)


def ends_alike(whole: Path, killed: Path) -> None:
    """Both saw the same labels, and learnt the same from them."""
    one, other = (torch.load(run / "checkpoint.pt", weights_only=True) for run in (whole, killed))
    for counted in ("steps", "labels", "tokens", "epoch"):  # nothing is trained on twice, nothing is left out
        assert one["progress"][counted] == other["progress"][counted]
    for mine, others in zip(one["parameters"], other["parameters"], strict=True):
        assert torch.allclose(mine, others, atol=1e-4)
    read_adapter(killed / "adapter")
    names = [sorted(str(path.relative_to(run)) for path in run.rglob("*")) for run in (whole, killed)]
    assert names[0] == names[1]


@pytest.mark.chaos
def test_the_workers_of_a_killed_run_end_with_it(base: Path, data: Path, tmp_path: Path) -> None:
    driver = begin(base, data, tmp_path / "run", 2)
    until = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint.pt").exists():
        assert driver.is_alive() and time.monotonic() < until
        time.sleep(0.05)
    assert driver.pid is not None and len(in_session(driver.pid)) > 2
    driver.kill()
    driver.join()
    until = time.monotonic() + 30
    while in_session(driver.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not in_session(driver.pid), "they would write into the folder of the next run"
    everything_is_whole(tmp_path / "run")
    steps = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["progress"]["steps"]
    result = train(settings(base, data, tmp_path / "run", epochs=2.0, tokens=300, workers=2))
    assert steps <= result.progress.steps and result.progress.epoch == 2 and result.validation["all"]["n"] == 16


def in_session(leader: int) -> list[int]:
    """The processes that a killed driver left behind, itself included while it runs."""
    found: list[int] = []
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getsid(int(path.name)) == leader and "Z (zombie)" not in (path / "status").read_text():
                found.append(int(path.name))
    return found


def test_presets_hold_the_papers_settings(tmp_path: Path) -> None:
    paper = preset("paper-gemma", base="google/gemma", train=(tmp_path,), validation=(), out=tmp_path)
    assert (paper.rank, paper.alpha, paper.dropout, paper.learning_rate) == (32, 64.0, 0.05, 1.5e-5)
    assert (paper.warmup, paper.weight_decay, paper.seed, paper.epochs) == (0.03, 0.1, 42, 1.0)
    assert (paper.accumulate, paper.layout) == (64, "full")
    with pytest.raises(ConfigurationError, match="ours"):
        preset("theirs")


@pytest.mark.parametrize(
    "wrong", [{"layout": "set"}, {"phases": (Phase(1.0, {"absent.jsonl": 1.0}),)}, {"margin": -1.0}, {"averaging": 1.0}]
)
def test_phases_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"minutes": 1.0, "phases": (Phase(1.0, {"a.jsonl": 1.0}),)}
    with pytest.raises(ConfigurationError):
        TrainConfig(base="b", train=(tmp_path / "a.jsonl",), validation=(), out=tmp_path, **{**plain, **wrong})


def test_the_rate_rises_and_falls_to_zero(tmp_path: Path) -> None:
    config = preset("ours", base=tmp_path, train=(tmp_path,), validation=(), out=tmp_path, minutes=10)
    rates = [learning_rate(config, share / 100) for share in range(101)]
    assert max(rates) == pytest.approx(config.learning_rate, rel=1e-2)
    assert rates[0] < rates[1] < rates[3] and rates[-1] < 1e-9
    assert all(a >= b for a, b in itertools.pairwise(rates[4:]))


def test_the_preset_has_the_shape_of_what_ships(tmp_path: Path) -> None:
    shipped = json.loads((STANDARD.directory / "adapter_config.json").read_text("utf-8"))
    config = preset("ours", base=tmp_path, train=(tmp_path,), validation=(), out=tmp_path, minutes=10)
    assert (config.rank, config.alpha) == (shipped["r"], shipped["lora_alpha"])
    assert config.first_layer == min(shipped["layers_to_transform"])


def test_support_is_always_shown_and_unmarked_items_whole(tmp_path: Path) -> None:
    import random

    path = tmp_path / "items.jsonl"
    many = [{"text": f"t{i}", "is_support": i == 7} for i in range(12)]
    bare = [{"text": f"u{i}"} for i in range(12)]
    rows = [item(0, 1, chunks=many), item(1, 1, source="bare", chunks=bare), item(2, 0, source="bare", chunks=bare)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = list(read_items(path))
    assert unmarked_sources(items) == {"bare"}
    others = items[1].chunks
    for seed in range(30):
        rng = random.Random(seed)
        assert any(chunk.is_support for chunk in shown_chunks(items[0], rng, seed, others))
        assert set(items[1].chunks) <= set(shown_chunks(items[1], rng, seed, whole=True))


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="either minutes or epochs"):
        TrainConfig(base=tmp_path, train=(tmp_path,), validation=(), out=tmp_path)
    with pytest.raises(ConfigurationError, match="learning_rate"):
        preset("ours", base=tmp_path, train=(tmp_path,), validation=(), out=tmp_path, minutes=1, learning_rate=0)


def test_validation_items_of_one_group_stand_together() -> None:
    rows = [item(40 * n + group, n % 2, group=str(group)) for n in range(8) for group in range(40)]
    items = [SliceItem.model_validate(row) for row in rows]
    groups = [one.group for one in spread(items, 80)]
    assert len(groups) == 80 and len(set(groups)) == 10
    assert groups == sorted(groups)
