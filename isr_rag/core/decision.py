"""What a gate decides, with every number behind it: frozen, plain Python values, printable, JSON round trip."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from isr_rag._util import strict_json
from isr_rag._util.pages import rendered
from isr_rag._util.sealed import from_plain
from isr_rag._util.text import printable
from isr_rag.core.bounds import Action as Action, DecidedBy as DecidedBy, Reason as Reason
from isr_rag.core.evidence import Chunk, Focus, Nearest, one_line
from isr_rag.core.settings import Settings, lowest_target
from isr_rag.errors import ConfigurationError, InvalidInputError

SCHEMA_VERSION = 2
_NO_RISK = 5e-5  # a lower bound on the risk that four digits would print as 0, which reads like a promise
_WIDER = (0.1, 0.2, 0.3)  # targets that an abstention may suggest where the case would reach them
_MORE_EVIDENCE = "evidence that states it more directly"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and every number behind it (Algorithm 1, Box 1). Information quantities are in nats.

    A number that was never computed, because nothing was scored, is None.

    Attributes:
        action: ANSWER, ABSTAIN, or ACQUIRE where another retrieval round was allowed.
        reason: why.
        settings: everything that the decision depends on besides evidence and question: scorer, h*, orderings, rule.
        predicate: identifies what was asked.
        m: the number of orderings that it stands for: what a gate without a cascade would have scored.
        chunks: number of chunks decided about.
        q: probability of g = 1 for each ordering scored, renormalised over the labels; the low end of an interval.
        q_high: the high ends of those intervals; empty where every probability is exact.
        q_alone: probability of g = 1 for each chunk read alone; empty where the reference does not ask for it.
        orderings: the orderings scored: position -> index of the caller's chunk.
        q_bar: mean of q.
        q_lo: lowest q.
        p_ref: the reference's probability of g = 1; under the guarantee `selective` that of all cases at least as sure.
        reference: what p_ref came from, in words.
        budget: mean clipped KL(Ber(p_ref) || Ber(q_k)).
        bits_to_trust: B2T, the budget that the target asks for.
        risk_of_hallucination: RoH, a lower bound on the risk, never a guarantee.
        isr: budget / bits_to_trust; infinite when no bits are needed. ISR >= 1 is a necessary condition.
        js_certificate: upper bound on the mean |q - q_bar| (Proposition 2.9).
        decided_by: what settled it: the ratio of the paper's rule, or p_ref against p*.
        guarantee: what a calibrated p_ref promises (`isr_rag.calibration.artefact.Guarantee`). Empty where nothing was
            calibrated, and by the paper's literal rule, which answers whatever p_ref is.
        threshold_reached: whether the threshold with a finite-sample guarantee was reached; None if none was asked for.
        pointwise: a cautious estimate for cases about as sure; unlike 1 - p_ref under `selective`, 1 - pointwise may be
            summed over cases. 0 where the reference knows none.
        lowest_h_star: where no evidence could reach h*: the lowest target that some could; None elsewhere.
        question: the question in the words that were judged, where an adapter of a framework asked it; empty elsewhere.
        passes: forward passes spent, 0 when every ordering came from a cache.
        below_noise_floor: the whole dispersion lies under the scorer's numerical noise; None when unknown.
        focus: how much of the evidence was read; None when all of it was.
        left_out: indices of the caller's chunks that were not read: the words or the model's window did not suffice.
        nearest: the sentence read that is nearest by its words to what was judged; None where no word is shared.
        seconds: wall-clock time of the decision.
        detail: what failed, was not calibrated or did not fit, or why no evidence could suffice; empty otherwise.
    """

    action: Action
    reason: Reason
    settings: Settings
    predicate: str
    m: int
    chunks: int
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
    decided_by: DecidedBy = DecidedBy.ISR
    guarantee: str = ""
    threshold_reached: bool | None = None
    pointwise: float | None = None
    lowest_h_star: float | None = None
    passes: int = 0
    below_noise_floor: bool | None = None
    focus: Focus | None = None
    left_out: tuple[int, ...] = ()
    nearest: Nearest | None = None
    seconds: float = field(default=0.0, compare=False)
    detail: str = ""
    question: str = ""

    @property
    def h_star(self) -> float:
        """Target hallucination rate h* that was decided at."""
        return self.settings.h_star

    @property
    def p_star(self) -> float:
        """Target reliability 1 - h*."""
        return self.settings.p_star

    @property
    def answered(self) -> bool:
        """Whether the answer goes through."""
        return self.action is Action.ANSWER

    def __bool__(self) -> bool:
        raise TypeError("a Decision is neither true nor false: compare decision.action, or use decision.answered")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: enums as strings, tuples as lists, infinity as the string `"inf"`."""
        plain = json.loads(json.dumps(asdict(self)))
        if self.isr is not None and math.isinf(self.isr):
            plain["isr"] = "inf"
        return {"schema_version": SCHEMA_VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Decision:
        """The inverse of `to_dict`; InvalidInputError for another schema version, or a missing or unknown field."""
        if not isinstance(plain, dict):  # callers do not all check types
            raise InvalidInputError("this is not a decision as to_dict writes it")
        values = dict(plain)
        version = values.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InvalidInputError(f"a decision of schema version {version!r}; this package reads {SCHEMA_VERSION}")
        if values.get("isr") == "inf":
            values["isr"] = math.inf
        try:
            decision = from_plain(cls, values)
            numbers = (getattr(decision, one.name) for one in fields(cls))
            if any(isinstance(number, float) and math.isnan(number) for number in numbers):
                raise ValueError("a number is NaN")
            return decision
        except (KeyError, TypeError, ValueError, ConfigurationError) as error:
            raise InvalidInputError(f"this is not a decision as to_dict writes it: {error!r}") from error

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """The inverse of `to_json`; InvalidInputError for any other text."""
        return cls.from_dict(json_of(text))

    def explain(self) -> str:
        """The decision in words: what is trusted at how much, what is needed, where to look, what would change it."""
        return _explain(self)

    def at_shell(self, chunks: Sequence[Chunk] = ()) -> str:
        """As `print` shows it, with advice that names options of `isr-rag check`, and titles of the evidence."""
        return self._shown(_explain(self, chunks, at_shell=True))

    def __str__(self) -> str:
        return self._shown(_explain(self))

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
            spread = f"over {len(self.q)} ordering{'s' * (len(self.q) > 1)}, lowest {self.q_lo:.4f}"
            spread = "the same for every order, by construction" if self.settings.invariant else spread
            rows.append(("q_bar", f"{self.q_bar:.4f} {spread}"))
        if self.q_alone:
            place, best = max(enumerate(self.q_alone), key=lambda one: one[1])
            rows.append(("best chunk alone", f"{best:.4f} (number {place + 1} of the {len(self.q_alone)} read)"))
        if self.q_high:
            widest = max(high - low for low, high in zip(self.q, self.q_high, strict=True))
            rows.append(("q known up to", f"{widest:.2g}, where a label is not listed; decided on the cautious end"))
        if self.budget is not None and self.bits_to_trust is not None and self.isr is not None:
            rows.append(("ISR", f"{self.isr:.3g} = {self.budget:.4g} nats / {self.bits_to_trust:.4g} nats to trust"))
        if self.risk_of_hallucination is not None:
            floor = self.risk_of_hallucination
            shown = "no lower bound" if floor < _NO_RISK else f">= {floor:.4f} (a lower bound)"
            rows.append(("risk of hallucination", shown))
        if self.below_noise_floor and not self.settings.invariant and len(self.q) > 1:
            rows.append(("order dispersion", "lies under the scorer's numerical noise"))
        if self.focus is not None:
            rows.append(("evidence read", f"{self.focus.words_read} of {self.focus.words_total} words"))
        if self.left_out:
            rows.append(("chunks left out", f"{len(self.left_out)} of {self.chunks} (they did not fit)"))
        rows.append(("forward passes", f"{self.passes} (stands for m = {self.m}), {self.seconds:.2f} s"))
        return rows

    def _repr_html_(self) -> str:
        """A small table with a strip of the orderings' probabilities, for notebooks."""
        return rendered("core/decision.html", decision=self, rows=self._rows())


def json_of(text: str) -> Any:
    """The value of a JSON text; InvalidInputError for any other text."""
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"this is not JSON: {error}") from error


_HEADLINES = {
    Reason.SUFFICIENT: "the evidence carries it",
    Reason.REFERENCE_BELOW_TARGET: "it is not trusted enough",
    Reason.ORDER_SENSITIVE: "the model's belief depends on the order of the evidence",
    Reason.INSUFFICIENT_INFORMATION: "even with the evidence the model stays too far from the target",
    Reason.CUT_NOT_REACHED: "its score does not reach the calibrated threshold",
    Reason.OUTSIDE_CALIBRATION: "the reference was not calibrated for cases like this",
    Reason.QUOTE_NOT_FOUND: "the evidence does not contain what it quotes",
    Reason.NUMBER_NOT_FOUND: "the evidence does not contain one of its numbers",
    Reason.NO_EVIDENCE: "there is no evidence",
    Reason.REFERENCE_FAILED: "the reference failed",
    Reason.SCORER_FAILED: "the scorer failed",
    Reason.RETRIEVER_FAILED: "the retriever failed",
    Reason.SHIFTED: "live cases no longer look like those that the calibration was made on",
}
"""One clause that says why."""

_CHANGES = {
    Reason.ORDER_SENSITIVE: "fewer chunks that distract from or contradict the one that carries it",
    Reason.INSUFFICIENT_INFORMATION: _MORE_EVIDENCE,
    Reason.CUT_NOT_REACHED: "more labelled data, which may allow a lower threshold, or a larger h*",
    Reason.OUTSIDE_CALIBRATION: "a calibration on labelled data of your own that covers such cases",
    Reason.QUOTE_NOT_FOUND: "evidence that contains the quoted passage",
    Reason.NUMBER_NOT_FOUND: "evidence that has the number",
    Reason.NO_EVIDENCE: "retrieving evidence",
    Reason.SHIFTED: "a calibration on labels of the new cases",
}
"""What would change an abstention; where the reference is below its target, see `_trusted_more`."""


def _explain(decision: Decision, chunks: Sequence[Chunk] = (), *, at_shell: bool = False) -> str:
    """Two or three sentences for a reader who does not know the method."""
    trusted = _trusted(decision)
    parts = [trusted] if trusted else []
    if decision.reason in (Reason.ORDER_SENSITIVE, Reason.INSUFFICIENT_INFORMATION) and decision.q:
        mean = f"The model gives it {decision.q_bar:.2g} on average"
        parts.append(f"{mean} over the orders of the chunks, and {decision.q_lo:.2g} in the worst.")
    if decision.reason is not Reason.REFERENCE_BELOW_TARGET or not trusted:  # the numbers alone say that one
        refuted = decision.answered and decision.predicate.startswith("refuted")
        first = "the evidence contradicts it" if refuted else _HEADLINES[decision.reason]
        parts.insert(0, f"{first[0].upper()}{first[1:]}.")
    if decision.detail:
        detail = decision.detail.rstrip(". ")
        parts.append(f"{detail[0].upper()}{detail[1:]}.")
    if decision.lowest_h_star is not None:
        choose = f"{'--h-star ' if at_shell else 'h_star >= '}{lowest_target(1.0 - decision.lowest_h_star):g}"
        parts.append(f"Choose {choose}, or calibrate on more labelled items.")
    if decision.nearest is not None:
        parts.append(_where_to_look(decision, decision.nearest, chunks))
    below = decision.reason is Reason.REFERENCE_BELOW_TARGET
    change = _trusted_more(decision, "--h-star " if at_shell else "h_star=") if below else _CHANGES.get(decision.reason)
    if change:
        parts.append(f"What would change it: {change}.")
    return " ".join(parts)


def percent(value: float, beside: float) -> tuple[str, str]:
    """Two probabilities in percent, with as many digits as tell them apart; the first is never rounded up."""
    for digits in range(4):
        unit = 10.0 ** (digits + 2)
        shown = int(value * unit + 1e-9) / unit
        left, right = f"{shown:.{digits}%}", f"{beside:.{digits}%}"
        if left != right or abs(value - beside) < 1e-9:
            return left, right
    return f"{value:.4%}", f"{beside:.4%}"


def _trusted(decision: Decision) -> str:
    if decision.p_ref is None:
        return ""
    trusted, needed = percent(decision.p_ref, decision.p_star)
    if decision.settings.rule.convention == "paper":
        return f"It is trusted at {trusted}, which the paper's rule ignores (h* = {decision.h_star:g})."
    if decision.guarantee == "selective":  # the class is all cases at least as sure
        said = f"{trusted} of the cases at least as sure as this one hold; {needed} must (h* = {decision.h_star:g})."
        own = decision.pointwise or decision.p_ref  # 0: no bound is known
        if decision.p_ref - own > 0.05:
            said += f" Of cases only about as sure, {own:.0%} do, by a cautious estimate."
        return f"By its calibration, {said}"
    return f"It is trusted at {trusted}; {needed} is needed (h* = {decision.h_star:g})."


def _where_to_look(decision: Decision, nearest: Nearest, chunks: Sequence[Chunk]) -> str:
    """The sentence nearest to the claim, and for an abstention the claim's words that it lacks."""
    end = "" if nearest.sentence[-1:] in ".!?" else "."
    title = chunks[nearest.chunk].title if chunks else None
    place = f"chunk {nearest.chunk + 1}{f' ({one_line(title)})' if title else ''}"
    said = f"The nearest sentence is in {place}: “{nearest.sentence}”{end}"
    if decision.answered or not nearest.lacking:
        return said
    lacking = ", ".join(f"“{word}”" for word in nearest.lacking)
    return f"{said} That sentence lacks {lacking}."


def _trusted_more(decision: Decision, setting: str) -> str:
    """What would bring p_ref to its target, or the target to p_ref; the least wider one that the case would reach."""
    found = [_MORE_EVIDENCE] if decision.lowest_h_star is None else []
    if decision.p_ref is not None and decision.threshold_reached is None:  # else each target needs a threshold
        reached = [h for h in _WIDER if h > decision.h_star and decision.p_ref >= 1.0 - h]
        found += [f"{setting}{h:g} if {h:.0%} wrong answers will do" for h in reached[:1]]
    last = "a calibration on labelled data of your own"
    return f"{', '.join(found)}, or {last}" if found else last
