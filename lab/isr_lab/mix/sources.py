"""Every source of the mix: its reader, its licence, and how much of it may be used for what.

Two whole sources are never trained on, and are written apart as `unseen`:

- `factcheck_gpt` for claims: atomic claims out of a language model's answers, against snippets a web search
  returned for them. No other set here is as near to what a gate meets in use, its makers and its evidence differ
  from every training set's, and it is openly licensed, so the figure can be published with its items.
- `eraser_multirc` for drafted answers: answers proposed by people over fiction, news, history and science
  texts (the drafts of training come from Wikipedia), hardly guessable without reading, and its licence allows
  research only, so nothing is lost to training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from isr_lab.mix.claims import read_expertqa, read_factcheck_gpt, read_qags, read_summedits
from isr_lab.mix.contrast import read_contrast
from isr_lab.mix.fever_pages import read_eraser_fever, read_sufficient_facts
from isr_lab.mix.hallucinated import read_halueval
from isr_lab.mix.inference import read_contract_nli, read_covidfact, read_healthver, read_rte
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.multihop import read_multihop
from isr_lab.mix.multirc import read_multirc
from isr_lab.mix.papers import read_qasper
from isr_lab.mix.reading import read_qed, read_squad2
from isr_lab.mix.records import Candidate
from isr_lab.mix.yes_no import read_boolq, read_condaqa, read_strategyqa

Terms = Literal["open", "unstated", "non_commercial"]
"""Whether the licence allows commercial use; `unstated` where neither files nor makers say."""


@dataclass(frozen=True, slots=True)
class Source:
    """One set.

    Attributes:
        folder: below the raw folder; a source whose folder is absent is reported as missing.
        read: makes its candidates.
        license: as stated by its makers, for provenance and model card.
        terms: whether that allows commercial use.
        caps: most training items by task (claim, draft, sufficiency).
    """

    folder: str
    read: Callable[[ReaderInputs], list[Candidate]]
    license: str
    terms: Terms
    caps: tuple[int, int, int]


UNSEEN = ("factcheck_gpt", "eraser_multirc")
_WIKI3, _WIKI4 = "CC BY-SA 3.0", "CC BY-SA 4.0"

SOURCES: dict[str, Source] = {
    "boolq": Source("boolq_train", read_boolq, _WIKI3, "open", (0, 1500, 400)),
    "condaqa": Source("condaqa", read_condaqa, "Apache-2.0; passages CC BY-SA 3.0", "open", (0, 3000, 700)),
    "contract_nli": Source("contract_nli", read_contract_nli, "CC BY 4.0", "open", (300, 0, 0)),
    "contrast": Source("corpus", read_contrast, "CC BY-SA 3.0/4.0 (Wikipedia)", "open", (4500, 0, 0)),
    "covidfact": Source("covidfact", read_covidfact, "none stated", "unstated", (1500, 0, 0)),
    "eraser_fever": Source("eraser_fever", read_eraser_fever, _WIKI3, "open", (1500, 0, 0)),
    "eraser_multirc": Source("eraser_multirc", read_multirc, "research only (MultiRC)", "non_commercial", (0, 0, 0)),
    "expertqa": Source("expertqa", read_expertqa, "MIT", "open", (600, 0, 0)),
    "factcheck_gpt": Source("factcheck_gpt", read_factcheck_gpt, "Apache-2.0", "open", (0, 0, 0)),
    "halueval": Source("halueval", read_halueval, "MIT; passages CC BY-SA 4.0", "open", (0, 2200, 1000)),
    "healthver": Source("healthver", read_healthver, "none stated", "unstated", (1500, 0, 0)),
    "multihop": Source("multihop", read_multihop, "Apache-2.0 (2Wiki), CC BY 4.0 (MuSiQue)", "open", (0, 1500, 1200)),
    "qags": Source("qags", read_qags, "none stated", "unstated", (500, 0, 0)),
    "qasper": Source("qasper", read_qasper, "CC BY 4.0", "open", (0, 300, 700)),
    "qed": Source("qed", read_qed, _WIKI3, "open", (0, 1200, 900)),
    "rte": Source("rte", read_rte, "terms of the sources (GLUE RTE)", "unstated", (1500, 0, 0)),
    "squad2": Source("squad2_train", read_squad2, _WIKI4, "open", (0, 2200, 1500)),
    "strategyqa": Source("strategyqa", read_strategyqa, "MIT; facts from Wikipedia", "open", (0, 450, 0)),
    "sufficient_facts": Source(
        "sufficient_facts", read_sufficient_facts, f"none stated; FEVER {_WIKI3}", "unstated", (900, 0, 0)
    ),
    "summedits": Source("summedits", read_summedits, "Apache-2.0", "open", (1500, 0, 0)),
}
"""All sources by name."""
