"""Loading causal language models: from the Hub, a folder or a GGUF file, quantised or not."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from isr_rag.errors import (
    ConfigurationError,
    ISRError,
    MemoryBudgetError,
    MissingDependencyError,
    ModelCorruptError,
    ModelNotFoundError,
    ScorerError,
    needed_for,
)

with needed_for("a local model", "local"):
    import torch as torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Quantization = Literal["nf4", "int8"]

W = TypeVar("W")
R = TypeVar("R")
_FORKED = (
    "a fork cannot use its parent's CUDA device: load the model in the new process, or start it with "
    'multiprocessing.get_context("spawn")'
)
_NO_MEMORY = re.compile(  # the last is bitsandbytes', of a model whose parts would lie outside the GPUs
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|cublasCreate\(handle\)|can't allocate memory|enough GPU RAM"
)

_IDLE = re.compile(  # fields of a configuration that change no score (or, like dtype, are named beside it)
    r"_.*|architectures|transformers_version|(torch_)?dtype|use_cache|return_dict|output_.*|.*dropout.*|initializer_.*"
)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto`: bfloat16 on CUDA (float16 where the hardware lacks it), float32 elsewhere; or the dtype of that name."""
    has_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return torch.float32 if device.type != "cuda" else torch.bfloat16 if has_bfloat16 else torch.float16
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize < 2:  # nothing adds float8
        raise ConfigurationError(f"dtype must be 'auto', 'float32', 'bfloat16' or 'float16', got {name!r}")
    if dtype == torch.bfloat16 and not has_bfloat16:
        raise ConfigurationError(f"{device} computes no bfloat16: choose float16, as 'auto' does, or float32")
    return dtype


def as_device(name: str) -> torch.device:
    """The device of a name (`auto`: CUDA when there is one, else the CPU); ConfigurationError if there is none."""
    cuda = torch.cuda.is_available()
    try:
        device = torch.device(("cuda" if cuda else "cpu") if name == "auto" else name)
        if device.type != "cuda":
            torch.empty(0, device=device).cpu()
    except Exception as error:  # each kind of device that is missing raises its own
        raise ConfigurationError(f"there is no device {name!r}: {str(error).partition('. ')[0]}") from error
    if device.type == "cuda" and not cuda:
        raise ConfigurationError(f"there is no device {name!r}: torch {torch.__version__} finds no CUDA device here")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigurationError(f"there is no device {name!r}: the last is cuda:{torch.cuda.device_count() - 1}")
    return device


def begin_after_fork(device: torch.device) -> str:
    """Make torch usable in a fork; why a model on this device is not, if it is not."""
    torch.set_num_threads(1)  # a fork has none of the threads that shared the sums, and would wait for them
    return _FORKED if device.type == "cuda" else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device has no memory left; the driver, cuBLAS and the CPU say so in other words."""
    said = isinstance(error, (RuntimeError, ValueError)) and bool(_NO_MEMORY.search(str(error)))
    return said or isinstance(error, (torch.OutOfMemoryError, MemoryError))


def in_halves(work: list[W], read: Callable[[list[W]], list[R]], what: Callable[[W], str]) -> list[R]:
    """Read items together, in halves when memory runs out; ScorerError that says `what` ran out of it for one alone."""
    try:
        return read(work)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside the except block, whose traceback would keep the memory of the pass that failed.
    if len(work) == 1:
        raise ScorerError(f"{what(work[0])}: use fewer chunks, a smaller dtype or quantization")
    torch.cuda.empty_cache()
    half = len(work) // 2
    return in_halves(work[:half], read, what) + in_halves(work[half:], read, what)


@contextmanager
def fitting(model: str) -> Generator[None, None, None]:
    """Say what to do where a device has no room for a model, or is that of a process which this one was forked from."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error) and not isinstance(error, MemoryBudgetError):
            use = 'use a smaller dtype, quantization, another device, or several GPUs (device="all")'
            raise MemoryBudgetError(f"the model {model!r} does not fit into memory: {use}: {error}") from error
        if "in forked subprocess" in str(error):
            raise ScorerError(_FORKED) from error
        raise


@contextmanager
def loading(model: str) -> Generator[None, None, None]:
    """Turn what loading raises into typed errors that say what to do."""
    try:
        with fitting(model):
            yield
    except ISRError:
        raise
    except ImportError as error:  # of what this one model needs; transformers says what to install
        raise ConfigurationError(f"the model {model!r} needs more than is installed: {error}") from error
    except Exception as error:  # every reader of a damaged file raises its own kind
        there, no_json = Path(model).exists(), isinstance(error.__context__, ValueError)
        if isinstance(error, OSError) and not (there and no_json):
            said = "lacks a file" if there else "is neither a folder nor a file here, nor did it come from the Hub"
            raise ModelNotFoundError(f"the model {model!r} {said}: {error}") from error
        if "custom code" in str(error):
            raise ConfigurationError(f"{model!r} is a model with code of its own, which is never run") from error
        if "Unrecognized configuration class" in str(error):
            kinds = "--model takes a causal language model, --cross-encoder a classifier (in Python CrossEncoder)"
            raise ConfigurationError(f"{model!r} is of another kind than it was named as: {kinds}") from error
        raise ModelCorruptError(f"the files of the model {model!r} cannot be read: {error}") from error


def check_as_loaded(model: PreTrainedModel, device: str, dtype: str, quantization: str | None) -> None:
    """ConfigurationError for settings that a model which is loaded already does not have, and will not take."""
    if device not in ("auto", str(model.device), model.device.type):
        raise ConfigurationError(f"the loaded model is on {model.device}: move it to {device!r} first")
    if dtype != "auto" or quantization is not None:
        raise ConfigurationError("dtype and quantization are for a model by its name: a loaded one has its own")


def load_model(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    revision: str | None = None,
    quantization: Quantization | None = None,
    classifier: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model, or a classifier, and its tokenizer; from safetensors or GGUF only, no remote code.

    Arguments and errors are those of `isr_rag.scorers.transformers.TransformersScorer`.
    """
    with needed_for("a local model", "local"):
        import transformers
    source, extra = model, {}
    if model.endswith(".gguf"):
        path = Path(model)
        if not path.is_file():
            raise ModelNotFoundError(f"there is no GGUF file at {path}")
        source, extra = str(path.parent), {"gguf_file": path.name}
    # Transformers would ask the user about code; on `main` it also finds safetensors that are only proposed.
    known: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
    place = as_device("auto" if device == "all" else device)
    with fitting(model):
        precision = resolve_dtype(dtype, place)
    weights: dict[str, Any] = {"dtype": precision, **(extra or {"use_safetensors": True})}  # never a pickle
    placed: str | dict[str, str] = "auto" if device == "all" else {"": str(place)}
    if quantization is not None:
        if quantization not in ("nf4", "int8"):
            raise ConfigurationError(f"quantization must be 'nf4', 'int8' or None, got {quantization!r}")
        if extra:
            raise ConfigurationError(f"a GGUF file has its own precision: leave out quantization={quantization!r}")
        if importlib.util.find_spec("bitsandbytes") is None:
            raise MissingDependencyError("quantization", "bitsandbytes", "quantized")
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": precision}
        bits: dict[str, Any] = {"load_in_4bit": True, **nf4} if quantization == "nf4" else {"load_in_8bit": True}
        weights |= {"quantization_config": transformers.BitsAndBytesConfig(**bits), "device_map": placed}
    elif extra:
        weights["quantization_config"] = transformers.GgufConfig(dequantize=True)
    if device == "all" or (place.type != "cpu" and importlib.util.find_spec("accelerate") is not None):
        weights["device_map"] = placed  # read straight onto the device, not through the memory of the CPU
    with loading(model), _quietly(Path(model).exists()):
        kind: Any = transformers.AutoModelForCausalLM
        own: dict[str, Any] = {}
        if classifier:
            kind, own = _classifier(model, known)
        words = own.pop("tokenizer", None)
        tokenizer = transformers.AutoTokenizer.from_pretrained(words or source, **({} if words else known), **extra)
        if not (extra or own):
            config = transformers.AutoConfig.from_pretrained(source, **known)
            if is_quantized(config):
                weights["device_map"] = placed  # quantised weights are placed as they are loaded
            if not classifier and type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
                kind = transformers.AutoModelForImageTextToText  # what sees pictures reads texts as well
        if "device_map" in weights and importlib.util.find_spec("accelerate") is None:
            raise MissingDependencyError("a model that is quantised or on several GPUs", "accelerate", "quantized")
        weights |= own
        loaded, found = kind.from_pretrained(source, output_loading_info=True, **known, **weights)
        if missing := sorted(found["missing_keys"]):  # transformers fills them with random numbers and warns
            raise ModelCorruptError(f"{model!r}, as {kind.__name__}, lacks the weights {', '.join(missing[:5])}")
        if place.type == "cuda" and {"cpu", "disk"} & set(map(str, getattr(loaded, "hf_device_map", {}).values())):
            raise torch.OutOfMemoryError("a part of it would lie outside the GPUs")
        if dtype == "auto" and loaded.config._attn_implementation == "eager" and not is_quantized(loaded.config):
            loaded = loaded.float()  # this attention rounds scores to the dtype of the model before the softmax
        return loaded if "device_map" in weights else loaded.to(place), tokenizer


def _classifier(model: str, known: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The class of transformers that reads a classifier, with arguments of its own."""
    import transformers

    said: dict[str, Any] = transformers.PreTrainedConfig.get_config_dict(model, revision=known["revision"])[0]
    made = str((said.get("architectures") or [""])[0])
    if made.startswith("HHEM"):  # the code that it brings does no more than this
        base = str(said.get("foundation", "google/flan-t5-base"))
        config = transformers.AutoConfig.from_pretrained(base, num_labels=2)
        own = {"config": config, "key_mapping": {r"^t5\.": ""}, "tokenizer": base}
        return transformers.T5ForTokenClassification, own
    writes = made == "T5ForConditionalGeneration" and "minicheck" in model.lower()
    return (transformers.T5ForConditionalGeneration if writes else transformers.AutoModelForSequenceClassification), {}


def is_quantized(config: Any) -> bool:
    """Whether a configuration is that of a model whose stored weights are quantised."""
    return getattr(config, "quantization_config", None) is not None


@contextmanager
def _quietly(quiet: bool) -> Generator[None, None, None]:
    """No progress bars of transformers for what is read from disk in seconds."""
    from transformers.utils import logging

    if quiet := quiet and logging.is_progress_bar_enabled():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if quiet:
            logging.enable_progress_bar()


def weights_fingerprint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A short hash over a thin sample of every weight, the configuration, and the tokenizer."""
    given = json.dumps(model.config.to_diff_dict(), default=repr)
    told = json.loads(given, object_hook=lambda own: {n: v for n, v in own.items() if not _IDLE.fullmatch(n)})
    if backend := getattr(tokenizer, "backend_tokenizer", None):
        told |= json.loads(backend.to_str()) | {"padding": None, "truncation": None}  # which a call may have changed
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=repr).encode())
    for name, parameter in sorted((k, v) for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)):
        flat = parameter.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // 64)][:64]
        digest.update(name.encode() + str(tuple(parameter.shape)).encode())
        digest.update(sample.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
