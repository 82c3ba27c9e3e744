"""The public sets beside the mix: what reads each, under which licence, and what its items are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.look_alike import (
    read_amazon_pqa,
    read_clapnq,
    read_nomiracl,
    read_or_sharc,
    read_ropes,
    read_selqa,
    read_squad11,
)
from isr_lab.mix.pairs import (
    read_breaking_nli,
    read_cad_nli,
    read_conjnli,
    read_docnli_fever,
    read_docnli_mnli,
    read_factcg,
    read_folio,
    read_med,
    read_redocred,
)
from isr_lab.mix.records import Candidate
from isr_lab.mix.summaries import (
    read_bump,
    read_conjnli_dev,
    read_defacto,
    read_entailment_bank,
    read_realsumm,
    read_scifact,
)
from isr_lab.mix.yes_no import read_condaqa_test
from isr_lab.slice.schema import Task

Use = Literal["short", "questions", "mix", "calibration", "unseen"]
UNSEEN_ITEMS = 400
"""Items of a source that is kept unseen, at most."""
WIKIPEDIA = "Wikipedia CC BY-SA"


@dataclass(frozen=True, slots=True)
class PublicSet:
    """One public set beside the mix.

    Attributes:
        folder: below the raw folder; a set whose folder is absent is reported as missing.
        read: makes its candidates.
        license: as stated by its makers.
        use: what its items are for.
        caps: most training items by task.
        refuted: most items for the question whether the evidence contradicts the claim.
        by_evidence: also balance the labels within the length of the evidence.
    """

    folder: str
    read: Callable[[ReaderInputs], list[Candidate]]
    license: str
    use: Use
    caps: Mapping[Task, int]
    refuted: int = 0
    by_evidence: bool = False


SETS: dict[str, PublicSet] = {
    "cad_nli": PublicSet(
        "cad_nli", read_cad_nli, "Apache-2.0; SNLI CC BY-SA 4.0", "short", {"claim": 5200}, refuted=2000
    ),
    "factcg": PublicSet("factcg", read_factcg, "MIT", "short", {"claim": 2200}),
    "redocred_swap": PublicSet(
        "redocred_swap",
        read_redocred,
        f"MIT; {WIKIPEDIA}",
        "short",
        {"claim": 5200, "draft": 2400, "sufficiency": 2000},
        refuted=400,
    ),
    "conjnli": PublicSet("conjnli", read_conjnli, f"MIT; {WIKIPEDIA}", "short", {"claim": 3000}, refuted=800),
    "docnli_fever": PublicSet(
        "docnli_fever", read_docnli_fever, "CC BY-SA 3.0", "short", {"claim": 2400}, refuted=1000, by_evidence=True
    ),
    "breaking_nli": PublicSet("breaking_nli", read_breaking_nli, "CC BY-SA 4.0", "short", {"claim": 1000}, refuted=300),
    "docnli_mnli": PublicSet(
        "docnli_mnli", read_docnli_mnli, "MultiNLI terms (OANC, free use)", "short", {"claim": 4000}
    ),
    "med_help": PublicSet("med_help", read_med, "CC BY-SA 4.0", "short", {"claim": 1000}),
    "folio": PublicSet("folio", read_folio, "CC BY-SA 4.0", "short", {"claim": 500}, refuted=150),
    "squad11": PublicSet(
        "squad11_train44", read_squad11, "CC BY-SA 4.0", "questions", {"sufficiency": 3000, "draft": 3000}
    ),
    "selqa": PublicSet("selqa", read_selqa, f"Apache-2.0; {WIKIPEDIA}", "questions", {"sufficiency": 3600}),
    "amazon_pqa": PublicSet(
        "amazon_pqa", read_amazon_pqa, "CDLA-Sharing-1.0", "questions", {"sufficiency": 1600, "draft": 1400}
    ),
    "or_sharc": PublicSet("or_sharc", read_or_sharc, "CC BY-SA 3.0", "questions", {"sufficiency": 1400, "draft": 1600}),
    "ropes": PublicSet("ropes", read_ropes, "CC BY 4.0", "questions", {"draft": 2200}),
    "realsumm_scu": PublicSet("realsumm_scu", read_realsumm, "CC BY 4.0", "mix", {"claim": 5000}),
    "bump": PublicSet("bump", read_bump, "MIT; CNN/DailyMail articles", "mix", {"claim": 800}),
    "entailment_bank": PublicSet("entailment_bank", read_entailment_bank, "CC BY 4.0", "mix", {"claim": 1800}),
    "conjnli_dev": PublicSet("conjnli", read_conjnli_dev, f"MIT; {WIKIPEDIA}", "calibration", {"claim": 300}),
    "clapnq": PublicSet("clapnq", read_clapnq, f"Apache-2.0; {WIKIPEDIA}", "calibration", {"sufficiency": 300}),
    "nomiracl": PublicSet(
        "nomiracl_en", read_nomiracl, f"Apache-2.0; {WIKIPEDIA}", "calibration", {"sufficiency": 160}
    ),
    "scifact": PublicSet("scifact", read_scifact, "CC BY 4.0; abstracts ODC-BY 1.0", "unseen", {"claim": UNSEEN_ITEMS}),
    "defacto": PublicSet("defacto", read_defacto, "MIT; BBC articles", "unseen", {"claim": UNSEEN_ITEMS}),
    "condaqa_test": PublicSet(
        "condaqa", read_condaqa_test, f"Apache-2.0; {WIKIPEDIA}", "unseen", {"draft": UNSEEN_ITEMS}
    ),
}
"""All sets by name; the sources of the mix come from its own files."""
