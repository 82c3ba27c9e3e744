"""What an audit gets right on labelled answers: statements, whole answers, citations, and what it lets out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_lab.answers.scoring import ScoredAnswer, ScoredStatement
from isr_lab.metrics import Interval, auroc, wilson_interval
from isr_rag.audit import AuditCalibration, Budget
from isr_rag.audit.statement import Probabilities
from isr_rag.core.bounds import TOLERANCE, weigh
from isr_rag.core.settings import Settings

H_STARS = (0.05, 0.1, 0.2, 0.3)
_SPLITS = 200


@dataclass(frozen=True, slots=True)
class Detection:
    """How well what is not supported is found; `positive` is what is not.

    Attributes:
        n: how many were judged.
        positive: share of them that is not supported.
        auroc: of P(supported); None where all labels are the same.
        precision: of "not supported" at P(supported) <= 1/2; None where nothing was flagged.
        recall: at the same place; None where nothing is positive.
        f1: at the same place.
        best_f1: the highest F1 over all cuts, chosen on these very labels.
        average_precision: over all cuts.
    """

    n: int
    positive: float
    auroc: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    best_f1: float | None
    average_precision: float | None


@dataclass(frozen=True, slots=True)
class Released:
    """What goes out under one budget.

    Attributes:
        h_star: the budget.
        decided_by: `cut` or `bound`.
        true_kept: share of the supported statements that go out.
        false_through: share of the others that go out.
        answers: answers of which something goes out.
        broken: answers of which something unsupported goes out.
        risk: `broken` over all answers, with its Wilson interval.
    """

    h_star: float
    decided_by: str
    true_kept: float | None
    false_through: float | None
    answers: int
    broken: int
    risk: Interval


def probabilities(one: ScoredStatement, calibration: AuditCalibration) -> Probabilities:
    """The calibrated probabilities of a scored statement."""
    assert one.q is not None and one.r is not None
    return calibration.probabilities(one.closest if calibration.close else one.q, one.r)


def judged(answer: ScoredAnswer) -> list[ScoredStatement]:
    """The statements of an answer that were judged."""
    return [one for one in answer.statements if one.judged and one.q is not None and one.r is not None]


def of_statements(answers: Sequence[ScoredAnswer], calibration: AuditCalibration) -> Detection | None:
    """Detection among labelled statements; None where none is labelled."""
    found = [one for answer in answers for one in judged(answer) if one.label is not None]
    return _detection(
        [probabilities(one, calibration).supported for one in found], [one.label != "supported" for one in found]
    )


def of_answers(answers: Sequence[ScoredAnswer], calibration: AuditCalibration) -> Detection | None:
    """Detection among whole answers: an answer is as sure as its least sure statement."""
    found = [(answer, judged(answer)) for answer in answers if judged(answer)]
    return _detection(
        [min(probabilities(one, calibration).supported for one in own) for _, own in found],
        [not answer.holds for answer, _ in found],
    )


def _detection(supported: Sequence[float], positive: Sequence[bool]) -> Detection | None:
    p, y = np.asarray(supported), np.asarray(positive, dtype=bool)
    if not len(p):
        return None
    flagged = p <= 0.5
    hits = int((flagged & y).sum())
    precision = hits / int(flagged.sum()) if flagged.any() else None
    recall = hits / int(y.sum()) if y.any() else None
    best, average = _over_all_cuts(p, y)
    return Detection(
        n=len(p),
        positive=float(y.mean()),
        auroc=auroc(p, ~y) if y.any() and not y.all() else None,
        precision=precision,
        recall=recall,
        f1=_f1(precision, recall),
        best_f1=best,
        average_precision=average,
    )


def _f1(precision: float | None, recall: float | None) -> float | None:
    if precision is None or recall is None or precision + recall == 0.0:
        return None if recall is None else 0.0
    return 2 * precision * recall / (precision + recall)


def _over_all_cuts(p: NDArray[np.float64], y: NDArray[np.bool_]) -> tuple[float | None, float | None]:
    """The best F1 and the average precision of flagging the least supported first."""
    if not y.any():
        return None, None
    order = np.argsort(p, kind="stable")
    hits = np.cumsum(y[order])
    last = np.append(np.diff(p[order]) > 0, True)  # ties are flagged together
    precision, recall = (hits / np.arange(1, len(y) + 1))[last], (hits / y.sum())[last]
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(f1.max()), float(np.sum(np.diff(recall, prepend=0.0) * precision))


def three_way(answers: Sequence[ScoredAnswer], calibration: AuditCalibration) -> dict[str, Any] | None:
    """Accuracy and macro F1 of the three verdicts, with their confusion; None without three labels."""
    names = ("supported", "refuted", "not_enough")
    found = [one for answer in answers for one in judged(answer) if one.label in names]
    if {one.label for one in found} != set(names):
        return None
    confusion = np.zeros((3, 3), dtype=int)
    for one in found:
        said = probabilities(one, calibration).verdict.value
        confusion[names.index(str(one.label)), names.index(said)] += 1
    right = np.diag(confusion)
    f1 = 2 * right / np.maximum(confusion.sum(0) + confusion.sum(1), 1)
    return {
        "n": int(confusion.sum()),
        "accuracy": float(right.sum() / confusion.sum()),
        "macro_f1": float(f1.mean()),
        "confusion": {
            name: dict(zip(names, map(int, row), strict=True)) for name, row in zip(names, confusion, strict=True)
        },
    }


def citations(answers: Sequence[ScoredAnswer], calibration: AuditCalibration) -> dict[str, Any] | None:
    """Citations of statements that people found supported, where they named the chunks; None where nowhere.

    Precision: share of the cited chunks that people named. Recall: share of these statements of which a named chunk is
    cited; `recall_of_found`: among those that the audit finds supported, as it cites no others.
    """
    found = [one for answer in answers for one in judged(answer) if one.gold is not None and one.label == "supported"]
    if not found:
        return None
    sure = [one for one in found if probabilities(one, calibration).supported > 0.5]
    cited = [chunk in (one.gold or ()) for one in sure for chunk in set(one.cited)]
    hit = sum(bool(set(one.cited) & set(one.gold or ())) for one in sure)
    return {
        "statements": len(found),
        "found": len(sure),
        "cited": len(cited),
        "precision": sum(cited) / len(cited) if cited else None,
        "recall": hit / len(found),
        "recall_of_found": hit / len(sure) if sure else None,
    }


def released(answers: Sequence[ScoredAnswer], calibration: AuditCalibration, h_star: float) -> Released:
    """What `AnswerAudit.releasable` lets out of labelled answers."""
    cut = calibration.budget.threshold(h_star)
    kept = [_kept(answer, calibration, h_star, cut) for answer in answers]
    pairs = [(one, one in own) for answer, own in zip(answers, kept, strict=True) for one in judged(answer)]
    true = [out for one, out in pairs if one.label == "supported"]
    false = [out for one, out in pairs if one.label is not None and one.label != "supported"]
    broken = sum(_is_broken(answer, own) for answer, own in zip(answers, kept, strict=True))
    return Released(
        h_star=h_star,
        decided_by="bound" if cut is None else "cut",
        true_kept=float(np.mean(true)) if true else None,
        false_through=float(np.mean(false)) if false else None,
        answers=sum(map(bool, kept)),
        broken=broken,
        risk=wilson_interval(broken, len(answers)),
    )


def _kept(
    answer: ScoredAnswer, calibration: AuditCalibration, h_star: float, cut: float | None
) -> list[ScoredStatement]:
    sure = [one for one in judged(answer) if probabilities(one, calibration).supported > 0.5]
    if cut is not None:
        return [one for one in sure if probabilities(one, calibration).supported > cut]
    kept: list[ScoredStatement] = []
    spent = 0.0
    for one in sorted(sure, key=lambda one: _risk(one, h_star)):
        spent += _risk(one, h_star)
        if spent > h_star + TOLERANCE:
            break
        kept.append(one)
    return kept


def _risk(one: ScoredStatement, h_star: float) -> float:
    if one.q is None or one.p_ref is None or one.pointwise is None:
        return math.inf
    answers = weigh([one.q], one.p_ref, Settings(h_star=h_star)).answers
    return 1.0 - one.pointwise if answers else math.inf


def _is_broken(answer: ScoredAnswer, kept: Sequence[ScoredStatement]) -> bool:
    """Whether something unsupported goes out; where only the whole answer is labelled, whether all of it does."""
    labels = [one.label for one in kept if one.label is not None]
    if labels:
        return any(label != "supported" for label in labels)
    return bool(kept) and not answer.holds and len(kept) == len(judged(answer))


def within_source(
    answers: Sequence[ScoredAnswer], calibration: AuditCalibration, h_star: float
) -> dict[str, Any] | None:
    """The cut calibrated on one half of a source and tried on the other, over random halves by group.

    Answers of the calibration and the test are then exchangeable, which those of different sources are not.
    """
    labelled = [answer for answer in answers if any(one.label is not None for one in answer.statements)]
    groups = sorted({answer.group for answer in labelled})
    if len(groups) < 2 / h_star:
        return None
    rng = np.random.default_rng(0)
    risks, kept = [], []
    for _ in range(_SPLITS):
        seen = set(rng.permutation(groups)[: len(groups) // 2].tolist())
        first = [answer for answer in labelled if answer.group in seen]
        second = [answer for answer in labelled if answer.group not in seen]
        own = with_budget(calibration, first)
        if own.budget.threshold(h_star) is None:
            return None
        found = released(second, own, h_star)
        risks.append(found.broken / len(second))
        if found.true_kept is not None:
            kept.append(found.true_kept)
    return {"splits": _SPLITS, "mean_risk": float(np.mean(risks)), "true_kept": float(np.mean(kept)) if kept else None}


def with_budget(calibration: AuditCalibration, answers: Sequence[ScoredAnswer]) -> AuditCalibration:
    """The same verdicts with the cut of other labelled answers."""
    scores = [worst(answer, calibration) for answer in answers if judged(answer)]
    names = Counter(answer.source for answer in answers)
    said = ", ".join(f"{name} {count}" for name, count in sorted(names.items()))
    return replace(calibration, budget=Budget(tuple(sorted(scores)), said, calibrated=True))


def worst(answer: ScoredAnswer, calibration: AuditCalibration) -> float:
    """The highest P(supported) among the unsupported statements of an answer that the audit takes for supported."""
    found = judged(answer)
    supported = [probabilities(one, calibration).supported for one in found]
    return highest_unsupported(supported, [one.label in (None, "supported") for one in found])


def highest_unsupported(supported: Sequence[float], labels: Sequence[bool]) -> float:
    """Of one labelled answer the highest P(supported) among its unsupported statements; 0 where none could go out.

    What is not more likely supported than not never goes out, so it does not count.

    Args:
        supported: P(supported) of each statement, shape (n,).
        labels: whether it is supported, shape (n,).
    """
    wrong = (p for p, right in zip(supported, labels, strict=True) if not right)
    return max((p for p in wrong if p > 0.5), default=0.0)
