"""Options that several commands share, in groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

import typer

from isr_rag._util import strict_json
from isr_rag._util.text import printable
from isr_rag.core.orderings import Family
from isr_rag.core.settings import Orderings
from isr_rag.scorers.adjudicators import BASE, BASELINES, NAMES, STANDARD

if TYPE_CHECKING:
    from isr_rag.core.scorer import Scorer
    from isr_rag.gate import ISRGate

STDIO = Path("-")
"""Standard input or output in place of a file."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of its dataclass parameters, such as `GateOptions`, as options of their own."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hint := hints[name]):
            groups[name] = cast(type[Any], hint)
            own = get_type_hints(hint, include_extras=True)
            for one in fields(hint):
                option = inspect.Parameter(one.name, parameter.kind, annotation=own[one.name], default=one.default)
                parameters.append(option)
        else:
            parameters.append(parameter.replace(annotation=hint))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def input_file(path: Path | None) -> Path | None:
    """Check that an input is a file, or `STDIO`; a typer.BadParameter otherwise."""
    if path is not None and path != STDIO and not _is(path, Path.is_file):
        shown = printable(str(path), 200)
        raise typer.BadParameter(f"{shown} is a folder" if _is(path, Path.is_dir) else f"there is no file {shown}")
    return path


def output_file(path: Path | None) -> Path | None:
    """Check that an output can be a file there; a typer.BadParameter otherwise, also for `STDIO`."""
    if path is not None:
        in_folder = path != STDIO and _is(path.parent, Path.is_dir) and not _is(path, Path.is_dir)
        if not in_folder or (path.is_symlink() and not _is(path, Path.is_file)):
            shown = printable(str(path), 200)
            raise typer.BadParameter(f"{shown} cannot be written: name a file, in a folder that is there")
    return path


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # such as a name that is too long
        return False


Force = Annotated[bool, typer.Option(help="Replace a finished output, and drop what a run with other settings began.")]


def _fields(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        if isinstance(found := strict_json.loads(text), dict):
            return cast(dict[str, Any], found)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}") from error
    raise typer.BadParameter("it takes a JSON object")


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """Options that choose a model and how it is loaded."""

    model: Annotated[
        str | None,
        typer.Option(
            help="A model of transformers: Hub name, folder or .gguf file. standard (the default): the model of this "
            "package. permuted: the same, reading the chunks in their order. base: its base model. bm25, overlap: "
            "baselines. With --server: the name it is served under."
        ),
    ] = None
    server: Annotated[str | None, typer.Option("--server", help="URL of an OpenAI-compatible server.")] = None
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer of the served model, to render prompts here: name, folder or .gguf.")
    ] = None
    extra: Annotated[
        dict[str, Any] | None,
        typer.Option(parser=_fields, metavar="JSON", help="More fields of each request to --server."),
    ] = None
    cross_encoder: Annotated[str | None, typer.Option(help="A fact-checking cross-encoder: Hub name or folder.")] = None
    decisions: Annotated[str | None, typer.Option(help="URL of a decision model; --model is then its name.")] = None
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1, ..., or all: spread --model over the GPUs (accelerate).")
    ] = "auto"
    dtype: Annotated[str, typer.Option(help="Precision of --model: auto, float32, bfloat16 or float16.")] = "auto"
    quantization: Annotated[
        Literal["nf4", "int8"] | None, typer.Option(help="Load --model in 4 or 8 bits (CUDA, bitsandbytes).")
    ] = None
    cache: Annotated[Path | None, typer.Option(file_okay=False, help="Directory that remembers every score.")] = None

    def __post_init__(self) -> None:
        if (self.tokenizer or self.extra) and self.server is None:
            raise typer.BadParameter("--tokenizer and --extra are for a served model: give --server too")
        ways = [name for name in ("server", "cross_encoder", "decisions") if getattr(self, name) is not None]
        if len(ways) > 1 or (self.model is not None and ways == ["cross_encoder"]):
            raise typer.BadParameter("give one of --server, --cross-encoder, --decisions, and no --model to the second")
        served = self.server is not None or self.decisions is not None
        if (served or self.model in BASELINES) and self.device != "auto":
            raise typer.BadParameter("--device is for a model that is loaded here, not for --server or a baseline")
        loaded = self.model not in (None, *NAMES, *BASELINES) or self.cross_encoder is not None
        if (served or not loaded) and (self.dtype, self.quantization) != ("auto", None):
            said = "the judge of this package has its own, a server or a folder of --calibration says which"
            raise typer.BadParameter(f"--dtype and --quantization are for other models: {said}")

    def scorer(self, **more: Any) -> Scorer:
        """The scorer; `more` are further arguments of `isr_rag.scorers.load.load_scorer`."""
        from isr_rag.scorers import load

        return load.load_scorer(**{field.name: getattr(self, field.name) for field in fields(ScorerOptions)}, **more)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(ScorerOptions):
    """Options that choose a model and what it reads; a calibration belongs to exactly these."""

    def description(self) -> dict[str, Any]:
        """What `isr_rag.gate.reader.Reader` keeps: the arguments that load this scorer from any folder."""
        loading = {field.name for field in fields(ScorerOptions)} - {"cache"}
        given = {name: v for name, v in asdict(self).items() if name in loading and v not in (None, "auto")}
        named = self.server or self.decisions or self.model in (*NAMES, BASE, *BASELINES)
        folders = {"tokenizer", "cross_encoder"} if named else {"tokenizer", "cross_encoder", "model"}
        if "device" in given:  # another of its kind does as well
            given["device"] = self.device.partition(":")[0]
        return {k: str(Path(v).resolve()) if k in folders and Path(v).exists() else v for k, v in given.items()}

    m: Annotated[int | None, typer.Option("--m", help="Number of orderings, 6 by default.")] = None
    orderings: Annotated[Family, typer.Option(help="Family of the orderings.")] = "auto"
    max_words: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto"

    def uncalibrated_gate(self) -> ISRGate:
        """A gate without a reference, to score what is to be calibrated."""
        from isr_rag.gate import ISRGate

        return ISRGate(max_words=words(self.max_words), orderings=self.drawn(), scorer=self.scorer())

    def drawn(self, *, cascade: bool = False) -> Orderings:
        """The orderings that the options describe."""
        return Orderings(m=6 if self.m is None else self.m, family=self.orderings, cascade=cascade)


def calibration_file(path: Path | None) -> Path | None:
    """The file that `--calibration` names."""
    from isr_rag.gate.reader import READER

    if path is not None and (path / READER).is_file():
        return path
    if path is not None and _is(path, Path.is_dir):
        raise typer.BadParameter(f"{printable(str(path), 200)} has no {READER}: make it with isr-rag calibrate --out")
    return STANDARD.directory / "adversarial.json" if path == Path("adversarial") else input_file(path)


@dataclass(frozen=True, kw_only=True)
class GateOptions(ReadingOptions):
    """All options of a gate."""

    h_star: Annotated[float, typer.Option(help="Share of wrong answers to accept among those that go out.")] = 0.05
    calibration: Annotated[
        Path | None,
        typer.Option(
            callback=calibration_file,
            help="A folder of `isr-rag calibrate`, model and all; or a calibration of the model: a file, or "
            "`adversarial` for the default model's one on texts written to mislead.",
        ),
    ] = None
    p_ref: Annotated[float | None, typer.Option(help="An oracle's probability that the predicate holds.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calibration is not None and self.p_ref is not None:
            raise typer.BadParameter("give --calibration or --p-ref, not both")
        if self.calibration is not None and self.m is not None and _is(self.calibration, Path.is_dir):
            raise typer.BadParameter("a folder of --calibration says how many orderings are drawn: give no --m")
        words(self.max_words)

    def gate(self, *, cascade: bool = False, **settings: Any) -> ISRGate:
        """The gate; `settings` are further arguments of `isr_rag.cli.factory.build_gate`."""
        return self.gate_maker(cascade=cascade, **settings)()

    def gate_maker(self, *, cascade: bool = False, **settings: Any) -> Callable[[], ISRGate]:
        """A function that makes the gate, and that can be pickled."""
        from isr_rag.cli.factory import build_gate

        own = asdict(self) | {"orderings": self.drawn(cascade=cascade), "max_words": words(self.max_words)}
        del own["m"]
        return partial(build_gate, **own | settings)


def words(text: str) -> int | Literal["auto"] | None:
    """The value of `--max-words`: a number of words, `auto`, or None for `none`; a typer.BadParameter otherwise."""
    if text == "auto":
        return "auto"
    try:
        return None if text == "none" else int(text)
    except ValueError as error:
        raise typer.BadParameter(f"--max-words takes a number of words, auto or none, not {text!r}") from error
