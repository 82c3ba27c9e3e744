"""A small world for audits: a fake model that reads word by word, and a gate around it."""

from __future__ import annotations

import re
from typing import Any

from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout
from isr_rag.references import CalibratedMixture
from isr_rag.testing import FixedScorer

RIVERS = (
    "The Seine is 777 kilometres long. It flows through Paris.",
    "The Loire is 1006 kilometres long. It flows through Nantes. Nobody says that the Loire is short.",
    "The Rhine flows through Basel.",
)


class Itself:
    """The calibration of a model that can be taken at its word."""

    def __repr__(self) -> str:
        return "Itself()"

    def lower(self, score: float) -> float:
        return score


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.casefold())) - {"the", "a"}


def read(prompt: Prompt, ordering: Ordering) -> float:
    """Yes where one chunk has every word of the claim; contradicted where one says `wrong:` before them."""
    claim = re.search(r"^(?:Claim|Answer): (.*)$", prompt.suffix, re.MULTILINE)
    assert claim is not None
    wanted = words(claim.group(1))
    has = [words(prompt.chunks[i]) for i in ordering]
    if "contradict" in prompt.suffix:
        return 0.98 if any(wanted | {"wrong"} <= own for own in has) else 0.02
    return 0.98 if any(wanted <= own and "wrong" not in own for own in has) else 0.03


def gate(layout: Layout = "late", **settings: Any) -> ISRGate:
    return ISRGate(scorer=FixedScorer(read, layout=layout), reference=CalibratedMixture(Itself()), **settings)
