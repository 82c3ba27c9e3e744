"""What a gate decides, with every number behind it: frozen, plain Python values, printable, JSON round trip."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from isr_rag.errors import InvalidInputError
from isr_rag.explanation import explain
from isr_rag.pictures import plot, strip
from isr_rag.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isr_rag.evidence import Chunk

SCHEMA_VERSION = 1
_NUMBERS = (
    *("h_star", "clip", "q_second", "q_bar", "q_lo", "p_ref", "budget", "bits_to_trust", "risk_of_hallucination"),
    *("js_certificate", "seconds"),
)
_NO_RISK = 5e-5
"""A lower bound on the risk that four digits would print as 0, which reads like a promise."""


class Action(StrEnum):
    """What to do with the answer."""

    ANSWER = "answer"
    ABSTAIN = "abstain"
    ACQUIRE = "acquire"


class Reason(StrEnum):
    """Why a gate decided as it did."""

    SUFFICIENT = "sufficient"
    """ISR >= 1, and the reference reaches the target."""
    REFERENCE_BELOW_TARGET = "reference_below_target"
    """p_ref < p*: what is trusted about the case does not reach the target, whatever the model says."""
    ORDER_SENSITIVE = "order_sensitive"
    """ISR < 1 only because some ordering's probability lies far below the mean."""
    INSUFFICIENT_INFORMATION = "insufficient_information"
    """ISR < 1 even for the mean over the orderings: the budget does not reach the bits to trust."""
    CUT_NOT_REACHED = "cut_not_reached"
    """The calibrated cut with the finite-sample guarantee was asked for and is not reached."""
    OUTSIDE_CALIBRATION = "outside_calibration"
    """The case lies outside of what the reference was calibrated for; the detail says what does."""
    NO_EVIDENCE = "no_evidence"
    """There was no chunk to look at; nothing was scored."""
    REFERENCE_FAILED = "reference_failed"
    """The reference raised or returned no probability, and the policy is to abstain."""
    SCORER_FAILED = "scorer_failed"
    """The scorer raised or returned no probabilities, and the policy is to abstain."""
    RETRIEVER_FAILED = "retriever_failed"
    """The retriever of an acquisition loop raised, and the policy is to abstain."""
    SHIFTED = "shifted"
    """Live scores no longer look like those of the calibration, and a watch (`isr_rag.shift`) was told to abstain."""


@dataclass(frozen=True, slots=True)
class Focus:
    """How much of the evidence was read when it was cut to the sentences that matter.

    Attributes:
        words_read: words kept over all chunks, titles included.
        words_total: words the chunks had, titles included.
        budget: the limit in words that was applied.
    """

    words_read: int
    words_total: int
    budget: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """The sentence of the evidence whose words are nearest to what was judged.

    It says where to look, by words alone; the model and the reference did not see it.

    Attributes:
        chunk: index of the caller's chunk.
        sentence: at most 60 words of it, on one line.
        lacking: words of the claim, or of the drafted answer, that neither it nor its title has; at most six.
    """

    chunk: int
    sentence: str
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and every number behind it (Algorithm 1, Box 1). Information quantities are in nats.

    A number that was never computed, because nothing was scored, is None.

    Attributes:
        action: ANSWER, ABSTAIN, or ACQUIRE where another retrieval round was allowed.
        reason: why.
        q: probability of g = 1 for each ordering scored, renormalised over the labels; the low end where it is known
            only up to an interval.
        q_high: the high ends of those intervals; empty where every probability is exact.
        orderings: the orderings scored: position -> index of the caller's chunk.
        q_alone: probability of g = 1 for each chunk read by itself, in the caller's order of those that were read;
            empty where the reference does not ask for it.
        q_bar: mean of q.
        q_lo: lowest q.
        p_ref: the reference's probability of g = 1; where it is calibrated, of the class that `guarantee` names.
        reference: what p_ref came from, in words.
        budget: mean clipped KL(Ber(p_ref) || Ber(q_k)).
        bits_to_trust: B2T, the budget that the target asks for.
        risk_of_hallucination: RoH, a lower bound on the risk, never a guarantee.
        isr: budget / bits_to_trust; infinite when no bits are needed. ISR >= 1 is a necessary condition.
        h_star: target hallucination rate; p* = 1 - h*.
        clip: B, the upper limit of each budget term.
        convention: `safe` (this project's) or `paper` (the paper's literal rule).
        decided_by: `isr`: the ratio of the paper's rule settled it; `reference`: p_ref against p* did, as for every
            calibrated decision of an order-invariant scorer, whose ISR follows from it. With `+cut` a calibrated cut
            had to be reached too.
        guarantee: what a calibrated p_ref promises: `rate`: at most h* of the cases answered at it are expected to
            be wrong; `each`: cases that look like this one hold so often. Empty where nothing was calibrated, and by
            the paper's literal rule, which answers whatever p_ref is.
        predicate: identifies what was asked.
        family: family of the orderings.
        m: the number of orderings this decision stands for: what a gate without a cascade would have scored to
            decide the same.
        passes: forward passes spent, 0 when every ordering came from a cache; that of a second reader not counted.
        invariant: the model cannot see the order, so one pass is enough for all orderings.
        js_certificate: upper bound on the mean |q - q_bar| (Proposition 2.9).
        below_noise_floor: the whole dispersion lies under the scorer's numerical noise; None when unknown.
        chunks: number of chunks decided about.
        focus: how much of the evidence was read; None when all of it was.
        left_out: indices of the caller's chunks that were not read: the words or the model's window did not suffice.
        scorer: identity of the scorer.
        nearest: the sentence read that is nearest to what was judged, by its words; None where nothing was read, or no
            word is shared.
        seconds: wall-clock time of the decision.
        detail: what failed, lies outside of the calibration or did not fit the model's window, or why no evidence
            could have sufficed; empty otherwise.
        q_second: the probability of g = 1 that a second reader gives; None where the reference asks none.
    """

    action: Action
    reason: Reason
    h_star: float
    clip: float
    convention: str
    predicate: str
    family: str
    m: int
    chunks: int
    scorer: str
    q: tuple[float, ...] = ()
    q_high: tuple[float, ...] = ()
    q_alone: tuple[float, ...] = ()
    orderings: tuple[tuple[int, ...], ...] = ()
    q_bar: float | None = None
    q_lo: float | None = None
    p_ref: float | None = None
    reference: str = ""
    budget: float | None = None
    bits_to_trust: float | None = None
    risk_of_hallucination: float | None = None
    isr: float | None = None
    js_certificate: float | None = None
    decided_by: str = "isr"
    guarantee: str = ""
    passes: int = 0
    invariant: bool = False
    below_noise_floor: bool | None = None
    focus: Focus | None = None
    left_out: tuple[int, ...] = ()
    nearest: Nearest | None = None
    seconds: float = field(default=0.0, compare=False)
    detail: str = ""
    q_second: float | None = None

    @property
    def p_star(self) -> float:
        """Target reliability 1 - h*."""
        return 1.0 - self.h_star

    @property
    def answered(self) -> bool:
        """Whether the answer goes through."""
        return self.action is Action.ANSWER

    def __bool__(self) -> bool:
        raise TypeError("a Decision is neither true nor false: compare decision.action, or use decision.answered")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: enums as strings, tuples as lists, infinity as the string `"inf"`."""
        plain = dataclasses.asdict(self)
        plain["action"], plain["reason"] = self.action.value, self.reason.value
        plain["q"], plain["q_high"], plain["q_alone"] = list(self.q), list(self.q_high), list(self.q_alone)
        plain["orderings"] = [list(ordering) for ordering in self.orderings]
        plain["left_out"] = list(self.left_out)
        if self.nearest is not None:
            plain["nearest"]["lacking"] = list(self.nearest.lacking)
        if self.isr is not None and math.isinf(self.isr):
            plain["isr"] = "inf"
        return {"schema_version": SCHEMA_VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Decision:
        """The inverse of `to_dict`.

        Raises:
            InvalidInputError: if the schema version is another one, or a field is missing or unknown.
        """
        if not isinstance(plain, dict):  # callers do not all check types
            raise InvalidInputError("this is not a decision as to_dict writes it")
        values = dict(plain)
        version = values.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InvalidInputError(f"a decision of schema version {version!r}; this package reads {SCHEMA_VERSION}")
        try:
            values["action"], values["reason"] = Action(values["action"]), Reason(values["reason"])
            values["q"] = tuple(float(q) for q in values["q"])
            values["q_high"] = tuple(float(q) for q in values.get("q_high", ()))
            values["q_alone"] = tuple(float(q) for q in values.get("q_alone", ()))
            values["orderings"] = tuple(tuple(int(i) for i in ordering) for ordering in values["orderings"])
            values["left_out"] = tuple(int(i) for i in values.get("left_out", ()))
            values["isr"] = None if values["isr"] is None else float(values["isr"])
            for name in _NUMBERS:
                if values.get(name) is not None:
                    values[name] = float(values[name])
            numbers = [values.get(name) for name in ("isr", *_NUMBERS)]
            if any(isinstance(number, float) and math.isnan(number) for number in numbers):
                raise ValueError("a number is NaN")
            if values.get("nearest") is not None:
                found = values["nearest"]
                values["nearest"] = Nearest(int(found["chunk"]), str(found["sentence"]), tuple(found["lacking"]))
            values["focus"] = None if values["focus"] is None else Focus(**values["focus"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"this is not a decision as to_dict writes it: {error!r}") from error

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """The inverse of `to_json`.

        Raises:
            InvalidInputError: if the text is not a JSON object of a decision.
        """
        try:
            plain = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"this is not JSON: {error}") from error
        if not isinstance(plain, dict):
            raise InvalidInputError("this is not a decision as to_json writes it")
        return cls.from_dict(plain)

    def explain(self) -> str:
        """The decision in words: what is trusted at how much, what is needed, where to look, what would change it."""
        return explain(self)

    def at_shell(self, chunks: Sequence[Chunk] = ()) -> str:
        """As `print` shows it, for somebody at a shell: advice names options of `isr-rag check`.

        Args:
            chunks: the evidence that it was made on; the title of the nearest one is then told.
        """
        return self._shown(explain(self, chunks=chunks, at_shell=True))

    def __str__(self) -> str:
        return self._shown(self.explain())

    def _shown(self, explanation: str) -> str:
        lines = [f"{self.action.name}: {explanation} ({self.reason.value})"]
        lines += [f"  {name:<22}{value}" for name, value in self._rows()]
        return "\n".join(printable(line, None) for line in lines)

    def _rows(self) -> list[tuple[str, str]]:
        """The numbers that were computed, as a person reads them."""
        rows: list[tuple[str, str]] = []
        if self.p_ref is not None:
            rows.append(("p_ref", f"{self.p_ref:.4f} against p* = {self.p_star:.4g}   [{self.reference}]"))
        if self.q and self.q_bar is not None and self.q_lo is not None:
            spread = (
                "the same for every order, by construction"
                if self.invariant
                else f"over {len(self.q)} orderings, lowest {self.q_lo:.4f}"
            )
            rows.append(("q_bar", f"{self.q_bar:.4f} {spread}"))
        if self.q_alone:
            place, best = max(enumerate(self.q_alone), key=lambda one: one[1])
            rows.append(("best chunk alone", f"{best:.4f} (number {place + 1} of the {len(self.q_alone)} read)"))
        if self.q_second is not None:
            rows.append(("second reader", f"{self.q_second:.4f}"))
        if self.q_high:
            widest = max(high - low for low, high in zip(self.q, self.q_high, strict=True))
            rows.append(("q known up to", f"{widest:.2g}, where a label is not listed; decided on the cautious end"))
        if self.budget is not None and self.bits_to_trust is not None and self.isr is not None:
            rows.append(("ISR", f"{self.isr:.3g} = {self.budget:.4g} nats / {self.bits_to_trust:.4g} nats to trust"))
        if self.risk_of_hallucination is not None:
            floor = self.risk_of_hallucination
            shown = "no lower bound" if floor < _NO_RISK else f">= {floor:.4f} (a lower bound)"
            rows.append(("risk of hallucination", shown))
        if self.below_noise_floor and not self.invariant and len(self.q) > 1:
            rows.append(("order dispersion", "lies under the scorer's numerical noise"))
        if self.focus is not None:
            rows.append(("evidence read", f"{self.focus.words_read} of {self.focus.words_total} words"))
        if self.left_out:
            rows.append(("chunks left out", f"{len(self.left_out)} of {self.chunks}, for want of room"))
        rows.append(("forward passes", f"{self.passes} (stands for m = {self.m}), {self.seconds:.2f} s"))
        return rows

    def _repr_html_(self) -> str:
        """A small table with a strip of the orderings' probabilities, for notebooks."""
        colour = {Action.ANSWER: "#0072b2", Action.ABSTAIN: "#d55e00", Action.ACQUIRE: "#b58900"}[self.action]
        rows = "".join(
            f'<tr><th style="text-align:left;padding-right:1em">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return (
            f'<div style="border-left:4px solid {colour};padding-left:0.8em">'
            f'<b style="color:{colour}">{self.action.name}</b> <code>{self.reason.value}</code>: '
            f"{html.escape(self.explain())}{strip(self, colour)}<table>{rows}</table></div>"
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the model's probability for each ordering beside what is trusted (p_ref) and what is needed (p*).

        Args:
            ax: matplotlib axes to draw on; a new figure by default.

        Raises:
            InvalidInputError: if nothing was scored.
            MissingDependencyError: if matplotlib is not installed.
        """
        return plot(self, ax)
