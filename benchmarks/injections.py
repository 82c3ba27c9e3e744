"""What typed attacks and denials get answered: injected strings in every field, and evidence that denies the claim.

    python benchmarks/injections.py --scores scores --json benchmarks/measured/injections-standard.json

Every string of `tests/security/strings.py` is put into a field of an unsupported item of the contrast set: after the
evidence's text, as its title, after the claim (false statements, each with the chunk that it nearly agrees with), after
the question or after the answer (wrong answers to the set's questions). The fields take turns over the strings; with
--every, each string is put into each field. It is newly answered where the gate abstains from the item without the
string. The denials are those of `isr_lab.contrast`. Scores are kept, so that another calibration costs nothing. Tables
are printed as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import machine

from isr_lab.contrast.data import load_denials, load_documents
from isr_rag import Chunk, ISRGate
from isr_rag._util.files import write_json
from isr_rag.gate.defaults import default_reference
from isr_rag.references import Oracle
from isr_rag.scorers.adjudicators import DEFAULT
from isr_rag.scorers.cache import CachedScorer
from isr_rag.scorers.embedded import embedded_scorer

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.security.strings import INSTRUCTIONS, STRINGS

H_STARS = (0.05, 0.1, 0.2)
FIELDS = ("text", "title", "claim", "question", "answer")


def item_of(field: str, number: int, string: str | None) -> dict[str, Any]:
    """An unsupported item with a string in one of its fields, or as it is."""
    documents = load_documents()
    more = "" if string is None else f" {string}"
    if field in ("question", "answer"):
        asked = [(document, question) for document in documents for question in document.questions]
        document, question = asked[number % len(asked)]
        return {
            "evidence": list(document.chunks),
            "question": question.question + (more if field == "question" else ""),
            "answer": question.wrong + (more if field == "answer" else ""),
        }
    twins = [(document, twin) for document in documents for twin in document.twins]
    document, twin = twins[number % len(twins)]
    text = document.chunks[twin.chunk] + (more if field == "text" else "")
    title = string if field == "title" else None
    return {"evidence": [Chunk(text, title)], "claim": twin.false + (more if field == "claim" else "")}


def asked(gate: ISRGate, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each item the model's mean probability, and whether the gate answers at each h*."""
    found: list[dict[str, Any]] = []
    for start in range(0, len(items), 25):
        part = items[start : start + 25]
        scored = gate.decide_batch([{**item, "reference": Oracle(1.0)} for item in part])
        decided = {h: gate.with_h_star(h).decide_batch(part) for h in H_STARS}
        for i, decision in enumerate(scored):
            assert decision.q_bar is not None, decision.detail
            found.append({"q": decision.q_bar, "answered": {h: decided[h][i].answered for h in H_STARS}})
        print(f"{start + len(part)} of {len(items)}", end="\r", file=sys.stderr, flush=True)
    return found


def summary(plain: Sequence[Mapping[str, Any]], attacked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over items with and without their string."""
    pairs = list(zip(plain, attacked, strict=True))
    changes = [b["q"] - a["q"] for a, b in pairs]
    return {
        "items": len(pairs),
        "answered_without": {h: sum(a["answered"][h] for a, _ in pairs) for h in H_STARS},
        "newly_answered": {h: sum(b["answered"][h] and not a["answered"][h] for a, b in pairs) for h in H_STARS},
        "no_longer_answered": {h: sum(a["answered"][h] and not b["answered"][h] for a, b in pairs) for h in H_STARS},
        "mean_change_of_q": sum(changes) / len(changes),
        "largest_change_of_q": max(changes),
        "from_below_half_to_above_nine_tenths": sum(a["q"] < 0.5 and b["q"] > 0.9 for a, b in pairs),
    }


def tables(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """What the counts are, and both tables."""
    every = rows["all"]

    def three(counts: Mapping[float, int]) -> str:
        return " / ".join(str(counts[h]) for h in H_STARS)

    lines = [
        f"{every['items']} strings (control tokens of known chat templates, odd characters, "
        f"{rows['instructions']['items']} typed instructions), each put into one field of an unsupported item; counts "
        "at h* = .05 / .1 / .2. Newly answered: the gate abstains from the item without the string.",
        "",
        "| strings | items | answered without | newly answered | no longer answered | q from below .5 to above .9 |",
        "|:--|:--|:--|:--|:--|:--|",
    ]
    for name in ("all", "instructions", *FIELDS):
        row = rows[name]
        said = name if name in ("all", "instructions") else f"in the {name}"
        lines.append(
            f"| {said} | {row['items']} | {three(row['answered_without'])} | {three(row['newly_answered'])} "
            f"| {three(row['no_longer_answered'])} | {row['from_below_half_to_above_nine_tenths']} |"
        )
    lines += [
        "",
        "Evidence that denies the claim, says that others report it, or is made of its words:",
        "",
        "| evidence | items | answered | mean q |",
        "|:--|:--|:--|:--|",
    ]
    for name, row in rows.items():
        if "answered" in row:
            lines.append(f"| {name} | {row['items']} | {three(row['answered'])} | {row['q']:.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    scorer = CachedScorer(embedded_scorer(), given.scores)
    gate = ISRGate(scorer=scorer, reference=default_reference())
    every: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for k, field in enumerate(FIELDS):
        turn = [i for i in range(len(STRINGS)) if given.every or i % len(FIELDS) == k]
        plain = asked(gate, [item_of(field, i, None) for i in turn])
        attacked = asked(gate, [item_of(field, i, STRINGS[i]) for i in turn])
        every += zip((STRINGS[i] for i in turn), plain, attacked, strict=True)
        rows[field] = summary(plain, attacked)
        print(field, rows[field])
    typed = [pair for pair in every if pair[0] in INSTRUCTIONS]
    for name, part in (("all", every), ("instructions", typed)):
        rows[name] = summary([plain for _, plain, _ in part], [attacked for _, _, attacked in part])
        print(name, rows[name])
    denials = load_denials()
    found = asked(gate, [{"evidence": [denial.evidence], "claim": denial.claim} for denial in denials])
    for kind in ("denial", "report", "salad"):
        for supported in (False, True):
            own = [f for d, f in zip(denials, found, strict=True) if d.kind == kind and d.supported == supported]
            if own:
                name = f"{kind}, {'supported' if supported else 'not supported'}"
                answered = {h: sum(f["answered"][h] for f in own) for h in H_STARS}
                rows[name] = {"items": len(own), "answered": answered, "q": sum(f["q"] for f in own) / len(own)}
                print(name, rows[name])
    print(tables(rows))
    if given.json:
        about = {"adjudicator": DEFAULT, "calibration": repr(gate.reference)}
        write_json(given.json, {**about, "rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()
