"""The report of the support-dose experiment: sentences, tables and plots."""

from __future__ import annotations

import numpy as np

from isr_lab.experiments.dose.findings import (
    MULTI_HOP,
    OTHERS,
    PAPER,
    POLICIES,
    SMALLEST_PART,
    Findings,
    Part,
    Settings,
    plain,
)
from isr_lab.experiments.dose.plots import arms_plot, response_plot
from isr_lab.experiments.dose.statistics import CONVENTIONS, DOSES, Policy, Slope
from isr_lab.experiments.literal_rule import answered_range
from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.sections import Cell, Figure, Section, Table
from isr_lab.metrics import Interval

_NAMES = {
    "answer_rate": "answer rate",
    "accuracy": "accuracy, all items",
    "accuracy_on_attempts": "accuracy on attempts",
    "hallucination": "hallucination, of all items",
    "hallucination_among_answered": "hallucination, among the answered",
}
_PAPER_CHANGES = {
    "answer_rate": PAPER["answer_rate_pp"],
    "accuracy": PAPER["accuracy_pp"],
    "accuracy_on_attempts": PAPER["accuracy_pp"],
    "hallucination": PAPER["hallucination_pp"],
}
_WEAK = 10.0
"""First-stage F below which an instrument is called weak (Staiger and Stock's rule of thumb)."""
_UNSEEN = 1e-9
_IDENTIFIES = (
    "What this identifies. The dose is set at random within every item, so the effects of a support chunk on the "
    "budget, on the answer rate and on errors are causal: they are the slopes on the dose, and the net changes above. "
    "The slope per nat is not the effect of a nat. With the gold label as reference the budget is the mean of -log q, "
    "and an error is a mean q below one half: both are read off the same probabilities. Without dispersion an error is "
    "a budget above log 2 = 0.693 nats, whatever the evidence; the OLS slope tells how the probabilities are spread, "
    "and cannot be negative when every answer counts. With one instrument the two-stage estimate is the dose's effect "
    "on hallucination over its effect on the budget: an exchange rate between two readings of one shift. It would be "
    "the effect of a nat only if the dose acted on errors through the budget alone, which one instrument cannot test, "
    "and which says nothing where the budget is computed from what decides the error."
)


def report(found: Findings, settings: Settings) -> Analysis:
    """Sentences, tables and plots of what was found."""
    return Analysis(plain(found, settings), _summary(found, settings), _sections(found, settings))


# -- sentences -------------------------------------------------------------------------------------------------------


def _summary(found: Findings, settings: Settings) -> list[str]:
    study = found.study
    residual = max(arm.residual for arm in found.arms)
    order = (
        "their order moves nothing (a scorer without order sensitivity: the control)"
        if residual <= _UNSEEN
        else f"their order moves the probability by {residual:.3g} at most (mean absolute residual of an arm)"
    )
    sentences = [
        f"{len(study.items)} items in {len(set(study.clusters))} clusters, each in four arms of four chunks, "
        f"{study.orderings} orderings a prompt; {order}.",
        _budget_sentence(found),
        *(_change_sentence(found, policy, words) for policy, words in _rules(found)),
        _slope_sentence(found),
        "The slope a nat is an exchange rate between two readings of the same probabilities, not the effect of "
        "information; what is causal is the effect of the dose.",
        _evidence_sentence(found, settings),
        _part_sentence(found),
    ]
    return [sentence for sentence in sentences if sentence]


def _budget_sentence(found: Findings) -> str:
    slope = found.per_chunk
    if slope is None or found.trend.spearman is None:
        return "No slope of the budget on the dose is defined on these items, so that there is no first stage."
    return (
        f"Each support chunk changes the budget by {_estimate(slope, '+.3f')} nats (paper -0.375: "
        f"{_beside(slope, -PAPER['budget_per_chunk_nats'])}); Spearman rho of dose and budget "
        f"{found.trend.spearman:.2f} (paper -0.80)."
    )


def _rules(found: Findings) -> list[tuple[Policy, str]]:
    """The rules to tell of: one where both answer the same."""
    if np.array_equal(found.study.answered["paper"], found.study.answered["safe"]):
        return [("paper", f"{POLICIES['paper']} and {POLICIES['safe']} alike")]
    return [(policy, POLICIES[policy]) for policy in CONVENTIONS]


def _change_sentence(found: Findings, policy: Policy, rule: str) -> str:
    changes = found.changes[policy]
    told = [
        f"{words} {_pp(changes[name])} (paper {paper:+.1f}: {_beside(_in_pp(changes[name]), paper)})"
        for name, words, paper in (
            ("answer_rate", "answer rate", PAPER["answer_rate_pp"]),
            ("accuracy_on_attempts", "accuracy on attempts", PAPER["accuracy_pp"]),
            ("hallucination", "hallucination", PAPER["hallucination_pp"]),
        )
    ]
    return f"From dose 0 to 3, {rule}, in percentage points: {'; '.join(told)}."


def _slope_sentence(found: Findings) -> str:
    told: list[str] = []
    for policy, rule in _rules(found):
        ols, iv = found.ols[policy], found.iv[policy]
        told.append(
            f"under {rule} {_estimate(ols, '+.3f')} by OLS ({_beside(ols, PAPER['slope_per_nat'])}), "
            f"{_estimate(iv, '+.3f')} with the dose as instrument"
        )
    f = _first_stage_f(found)
    strength = "" if f is None else f" First-stage F {f:.1f}{', a weak instrument' if f < _WEAK else ''}."
    return f"Hallucinations a nat of budget (paper +0.127, and +0.110 for Llama): {'; '.join(told)}.{strength}"


def _evidence_sentence(found: Findings, settings: Settings) -> str:
    none, most = found.arms[0], found.arms[-1]
    return (
        "Without any reference, and relative to the evidence shown: at dose 0 the model still says yes (mean "
        f"probability at least 0.5) for {_estimate(none.likely, '.1%')} of the items, and with at least "
        f"{1.0 - settings.h_star:g} for {_estimate(none.sure, '.1%')}, which are false answers; at dose 3 "
        f"{_estimate(most.likely, '.1%')} and {_estimate(most.sure, '.1%')} pass these cuts."
    )


def _part_sentence(found: Findings) -> str:
    told = [
        f"{part.name} ({part.items} items): {part.per_chunk.estimate:+.3f} nats a chunk, hallucination "
        f"{_pp(part.changes['hallucination'])} pp, yes at doses 0 to 3: {_by_dose(part)}"
        for part in found.parts
        if part.name in (MULTI_HOP, OTHERS) and part.per_chunk is not None
    ]
    return f"The paper's rule by kind of question: {'; '.join(told)}." if told else ""


def _by_dose(part: Part) -> str:
    return ", ".join("undefined" if share is None else f"{share.estimate:.2f}" for share in part.likely)


def _beside(ours: Interval | Slope | None, paper: float) -> str:
    """Our figure against the paper's, in words."""
    if ours is None:
        return "undefined here"
    if ours.lower == ours.upper == 0.0:
        return "nil here"
    if ours.lower <= 0.0 <= ours.upper:
        return "not to be told from zero here"
    if ours.estimate * paper < 0.0:
        return "the opposite sign here"
    if ours.lower <= paper <= ours.upper:
        return "agrees"
    return "same sign, smaller here" if abs(ours.estimate) < abs(paper) else "same sign, larger here"


def _first_stage_f(found: Findings) -> float | None:
    return next((slope.f for slope in found.iv.values() if slope is not None), None)


def _in_pp(share: Interval | None) -> Interval | None:
    if share is None:
        return None
    return Interval(100 * share.estimate, 100 * share.lower, 100 * share.upper, share.confidence)


def _pp(share: Interval | None) -> str:
    return _estimate(_in_pp(share), "+.1f")


def _ends(ours: Interval | Slope | None, form: str) -> str:
    return "" if ours is None else f"[{ours.lower:{form}}, {ours.upper:{form}}]"


def _estimate(ours: Interval | Slope | None, form: str) -> str:
    return "undefined" if ours is None else f"{ours.estimate:{form}} {_ends(ours, form)}"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


# -- sections and tables -----------------------------------------------------------------------------------------------


def _sections(found: Findings, settings: Settings) -> list[Section]:
    definitions = (
        "Definitions. y = 1 is the item's gold label in every arm, also where the evidence shown no longer carries it; "
        f"the reference is the gold label, so that the budget is the mean of min(-log q, {settings.clip:g}) nats over "
        "the orderings. The answer Y is the likelier label of the mean probability; g(Y) = 1 when it is the gold "
        "label; hallucination is answered and g(Y) = 0. Doses 1 and 2 of an item whose support lies in several "
        "sentences may not hold the whole answer. A chunk that is not marked as support may still be some."
    )
    dose_response = Figure(
        "dose_response",
        "The paper's figure: change of the hallucination rate (percentage points) against the decrease of the mean "
        "budget (nats), both since dose 0; small numbers are doses, bars 95% paired bootstrap intervals over clusters, "
        "lines the OLS slopes through the origin.",
        response_plot(found),
    )
    dose_arms = Figure(
        "dose_arms",
        "By support chunks of four: mean budget (nats, 95% bootstrap interval); share of items whose mean probability "
        "reaches a cut; answer rate, accuracy on attempts and hallucination under the paper's rule and under this "
        "project's (95% Wilson intervals).",
        arms_plot(found),
    )
    tables = [_arms_table(found, policy) for policy in CONVENTIONS]
    undefined = ["Not defined on these items. " + " ".join(found.undefined)] if found.undefined else []
    slopes: list[str | Table | Figure] = [_slopes_table(found), _IDENTIFIES, *undefined]
    sections = [
        Section("Beside the paper", (_paper_table(found), definitions, _rule_note(settings), dose_response)),
        Section("The arms", (*tables, _evidence_table(found, settings), dose_arms)),
        Section("Slopes, and what they identify", slopes),
    ]
    return [*sections, Section("Parts of the items", (_parts_table(found),))] if found.parts else sections


def _rule_note(settings: Settings) -> str:
    lowest, surest = answered_range(settings.h_star, settings.clip)
    return (
        "With the gold label as reference, the paper's rule to the letter answers, without dispersion, just where the "
        f"gold label's probability lies between {lowest:.4f}, below which the clip binds, and {surest:.4f}, at "
        f"h* = {settings.h_star:g}: right or wrong, and not where the model is surest of what is right. This project's "
        "rule asks for no bits where the lowest probability reaches the target, and so has no upper end. With this "
        "reference the answer rate therefore tells little but how often the model all but excludes the gold label. "
        "Neither is what a gate could do without knowing the label; the cut on the mean probability is, though not "
        "calibrated."
    )


def _paper_table(found: Findings) -> Table:
    rows: list[list[Cell]] = []
    for name, words in _NAMES.items():
        row: list[Cell] = [f"change of {words} (pp)", _PAPER_CHANGES.get(name)]
        for policy in CONVENTIONS:
            change = _in_pp(found.changes[policy][name])
            row += [None if change is None else change.estimate, _ends(change, "+.1f")]
        rows.append(row)
    for label, slopes, printed in (
        ("OLS", found.ols, PAPER["slope_per_nat"]),
        ("dose as instrument", found.iv, None),
    ):
        row = [f"hallucinations a nat of budget, {label}", printed]
        for policy in CONVENTIONS:
            slope = slopes[policy]
            row += [None if slope is None else slope.estimate, _ends(slope, "+.3f")]
        rows.append(row)
    chunk, decrease, trend = found.per_chunk, found.decrease, found.trend
    first = None if chunk is None else chunk.estimate
    both: list[tuple[str, float | None, float | None, str]] = [
        ("budget a support chunk (nats)", -PAPER["budget_per_chunk_nats"], first, _ends(chunk, "+.3f")),
        ("decrease of the budget (nats)", PAPER["budget_decrease_nats"], decrease.estimate, _ends(decrease, "+.3f")),
        ("Spearman rho of dose and budget", PAPER["spearman"], trend.spearman, _p(trend.spearman_p)),
        ("Pearson correlation of dose and budget", PAPER["spearman"], trend.pearson, ""),
        ("Page's trend test within items", None, None, _p(trend.page_p)),
        ("first-stage F of the dose", None, _first_stage_f(found), ""),
    ]
    rows += [[words, paper, ours, interval, ours, interval] for words, paper, ours, interval in both]
    return Table(
        "From dose 0 to dose 3; 95% intervals: paired bootstrap over clusters for changes, Student's t on clustered "
        "standard errors for slopes.",
        ("quantity", "paper", "here, paper's rule", "interval", "here, this project's rule", "interval"),
        rows,
        note="The paper gives one figure for accuracy, in one place as accuracy and in another as accuracy on "
        "attempts; its slope for Llama-3.1-8B is 0.110. The last six rows do not depend on the rule. Spearman's p "
        "takes all item-arms as independent, as the paper's; Page's test compares the arms within each item.",
    )


def _arms_table(found: Findings, policy: Policy) -> Table:
    rows: list[list[Cell]] = []
    for arm in found.arms:
        rates = arm.rates[policy]
        rows.append([arm.dose, _estimate(arm.budget, ".3f"), *(_estimate(rates[name], ".3f") for name in _NAMES)])
    return Table(
        f"Arms, {POLICIES[policy]}; budget in nats, shares as shares, 95% intervals (budget: bootstrap over clusters; "
        "shares: Wilson, items taken as independent).",
        ("support chunks of 4", "mean budget", *_NAMES.values()),
        rows,
    )


def _evidence_table(found: Findings, settings: Settings) -> Table:
    rows: list[list[Cell]] = [
        [arm.dose, arm.q_bar, arm.residual, _estimate(arm.likely, ".3f"), _estimate(arm.sure, ".3f")]
        for arm in found.arms
    ]
    cuts = ("share at 0.5 or more", f"share at {1.0 - settings.h_star:g} or more")
    return Table(
        "Without a reference: answering yes by a cut on the mean probability over the orderings; shares of items with "
        "95% Wilson intervals.",
        ("support chunks of 4", "mean probability", "mean absolute residual", *cuts),
        rows,
        note="At dose 0 no marked support is shown, so a yes is a false answer relative to the evidence; at doses 1 "
        "and 2 some of the yeses are.",
    )


def _slopes_table(found: Findings) -> Table:
    rows: list[list[Cell]] = []
    regressions = (
        ("on the budget, OLS (pp a nat)", found.ols),
        ("on the budget, dose as instrument (pp a nat)", found.iv),
        ("on the dose, OLS (pp a support chunk)", found.reduced),
    )
    for policy, words in POLICIES.items():
        for regression, slopes in regressions:
            slope = slopes[policy]
            cells: list[Cell] = [None] * 5
            if slope is not None:
                pp = slope.scaled(100.0)
                cells = [pp.estimate, pp.standard_error, _ends(pp, "+.2f"), _p(pp.p), pp.f]
            printed = 100 * PAPER["slope_per_nat"] if policy == "paper" and slopes is found.ols else None
            rows.append([words, regression, printed, *cells])
    clusters, item_arms = len(set(found.study.clusters)), found.study.budget.size
    return Table(
        f"Slopes of hallucination (percentage points): linear probability models over {item_arms} item-arms, standard "
        f"errors clustered ({clusters} clusters of items that share a record or page).",
        ("rule", "regression", "paper", "slope", "standard error", "95% interval", "p", "first-stage F"),
        rows,
        note="Positive on the budget: a lower budget goes with fewer hallucinations, as in the paper. With answering "
        "always, hallucination is any error, and the slope shows the mechanical link alone. The instrumented slope is "
        "the slope on the dose over the first stage.",
    )


def _parts_table(found: Findings) -> Table:
    rows: list[list[Cell]] = []
    for part in found.parts:
        changes = [_pp(part.changes[name]) for name in ("answer_rate", "accuracy", "hallucination")]
        rows.append([part.name, part.items, _estimate(part.per_chunk, "+.3f"), *changes, _by_dose(part)])
    return Table(
        "Parts of the items, the paper's rule: slope of the budget on the dose (nats a support chunk), changes from "
        f"dose {DOSES[0]} to {DOSES[-1]} (pp), and share of items with mean probability 0.5 or more; 95% intervals.",
        ("part", "items", "nats a chunk", "answer rate", "accuracy", "hallucination", "yes at doses 0 to 3"),
        rows,
        note=f"Parts of fewer than {SMALLEST_PART} items are left out. Multi-hop questions (HotpotQA) need two facts "
        "or more, so that doses 1 and 2 often fall short of the answer; in FEVER, NQ-Open and PopQA several marked "
        "sentences are often alternatives.",
    )
