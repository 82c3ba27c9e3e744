"""The figures of a contrast run as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isr_lab.contrast.figures import ALL, SETTINGS, ContrastFigures
from isr_lab.experiments.report import Report
from isr_lab.experiments.sections import Cell, Section, Table

SHOWN = {"alone": "the carrying chunk alone", "among": "among 5 chunks"}
DRAFTS = {"answerable": "wrong draft to an answerable question", "look-alike": "draft to a question without an answer"}


def report(found: ContrastFigures, *, scorer: str, reference: str | None) -> Report:
    """Tables of everything in `found`; parts that were not asked are left out.

    Args:
        found: from `isr_lab.contrast.figures.figures`.
        scorer: identity of the scorer.
        reference: what p_ref came from; None where nothing was decided.
    """
    sections: list[Section] = []
    if found["twins"]["among"]:
        sections.append(Section("Twins: one true, one nearly true", _twins(found["twins"])))
    if found["drafts"]:
        sections.append(Section("Questions: answerable, and ones that only look so", _questions(found)))
    if found["denials"]:
        sections.append(Section("Denials, reports of others, word salads", _denials(found["denials"])))
    return Report(
        title="The contrast set",
        question="Does the gate answer what is true and refuse what is nearly true?",
        summary=[
            *_summary(found),
            "The statements were written for this test: nothing that ships was trained or calibrated on them.",
            f"Scorer: {scorer}",
            f"Reference: {reference or 'none, so nothing was decided'}",
        ],
        sections=sections,
    )


def _summary(found: ContrastFigures) -> list[str]:
    lines: list[str] = []
    for setting in SETTINGS:
        if not (twins := found["twins"][setting].get(ALL)):
            continue
        line = f"Twins, {SHOWN[setting]}: the true one is above the false one in {twins['above']:.1%} of the pairs"
        for h_star, counts in twins["answered"].items():
            line += (
                f"; at h* = {h_star} {_of(counts, twins, 'true')} true and {_of(counts, twins, 'false')} false answered"
            )
        lines.append(f"{line}.")
    for h_star, counts in found["denials"].get(ALL, {}).get("answered", {}).items():
        lines.append(f"Denials at h* = {h_star}: {_of(counts, found['denials'][ALL], 'false')} newly answered.")
    return lines


def _of(counts: Mapping[str, int], group: ContrastFigures, label: str) -> str:
    return f"{counts[label]} of {group['n'][label]}"


def _twins(twins: Mapping[str, Mapping[str, ContrastFigures]]) -> list[Table]:
    alone, among = twins["alone"], twins["among"]
    ranking = Table(
        "True above false within a pair (share of pairs), AUROC of q over all statements, and mean q.",
        ["kind", "pairs", "above, alone", "above, among 5", "AUROC, alone", "AUROC, among 5", "q true", "q false"],
        [
            [
                kind,
                group["n"]["true"],
                alone[kind]["above"],
                group["above"],
                alone[kind]["auroc_q"],
                group["auroc_q"],
                group["mean_q"]["true"],
                group["mean_q"]["false"],
            ]
            for kind, group in among.items()
        ],
        note="Mean q is that among 5 chunks. Chance is .5.",
    )
    tables = [ranking]
    for setting in SETTINGS:
        if h_stars := list(twins[setting][ALL]["answered"]):
            rows = [[kind, group["n"]["true"], *_answered(group)] for kind, group in twins[setting].items()]
            tables.append(
                Table(
                    f"Answered true / answered false, {SHOWN[setting]}.",
                    ["kind", "pairs", *_headers(h_stars), "AUROC of p_ref"],
                    [[*row, group["auroc_p_ref"]] for row, group in zip(rows, twins[setting].values(), strict=True)],
                )
            )
    return tables


def _questions(found: ContrastFigures) -> list[Table]:
    drafts, sufficiency = found["drafts"], found["sufficiency"]
    groups = {"drafts: right against every wrong one": drafts[ALL]}
    groups |= {f"drafts: right against a {DRAFTS[kind]}": group for kind, group in drafts.items() if kind != ALL}
    groups["sufficiency: answerable against look-alike"] = sufficiency[ALL]
    return [_table("Among 5 chunks: answered true / answered false.", "asked", groups)]


def _denials(denials: Mapping[str, ContrastFigures]) -> list[Table]:
    return [
        _table(
            "Evidence that speaks of the claim without supporting it (false), and controls of the same wording that "
            "support theirs (true): answered true / answered false.",
            "kind",
            denials,
        )
    ]


def _table(caption: str, first: str, groups: Mapping[str, ContrastFigures]) -> Table:
    h_stars = list(next(iter(groups.values()))["answered"])
    header = [first, "true", "false", "AUROC of q", "AUROC of p_ref", "q true", "q false", *_headers(h_stars)]
    rows: list[Sequence[Cell]] = [
        [
            name,
            group["n"]["true"],
            group["n"]["false"],
            group["auroc_q"],
            group["auroc_p_ref"],
            group["mean_q"]["true"],
            group["mean_q"]["false"],
            *_answered(group),
        ]
        for name, group in groups.items()
    ]
    return Table(caption, header, rows)


def _headers(h_stars: Sequence[str]) -> list[str]:
    return [f"h* {h_star}" for h_star in h_stars]


def _answered(group: Mapping[str, Any]) -> list[str]:
    return [f"{counts['true']} / {counts['false']}" for counts in group["answered"].values()]
