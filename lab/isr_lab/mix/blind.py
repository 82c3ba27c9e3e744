"""How much of the labels can be told without the evidence: a bag of words on the claim, or question and answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from isr_lab.mix.records import Candidate
from isr_lab.slice.schema import SliceItem

FEWEST = 60
"""Items below which no figure is given."""
GUESSABLE = frozenset({"covidfact", "eraser_fever"})
"""Sources whose claims were written or edited in ways that give their labels away, with items to spare."""
_FOLDS = 5
_BANDS = 12


def blind_text(item: SliceItem) -> str:
    """What a model that ignores the evidence can see, the answer's words and length kept apart from the question's."""
    if item.claim is not None:
        return f"{item.claim} {_length(item.claim)}"
    answer = item.answer or ""
    marked = " ".join(f"a_{word}" for word in answer.split())
    return f"{item.question} {marked} {_length(answer)}"


def stratify(candidates: Sequence[Candidate]) -> dict[int, str]:
    """A stratum for each candidate (by `id`) within which its labels should be balanced.

    Yes/no answers are strata of their own, and so is every hypothesis of ContractNLI. Where the wording alone
    gives labels away (`GUESSABLE`), the strata are bands of a naive Bayes' blind guess.
    """
    strata = {id(one): _plain_stratum(one) for one in candidates}
    for source in sorted({one.source for one in candidates} & GUESSABLE):
        mine = [one for one in candidates if one.source == source]
        if (
            len(mine) >= FEWEST
            and len({one.label for one in mine}) == 2
            and len({one.keys[0] for one in mine}) >= _FOLDS
        ):
            bands = np.round(_guesses(mine) * _BANDS).astype(int)
            strata |= {id(one): f"{source}:{band}" for one, band in zip(mine, bands.tolist(), strict=True)}
    return strata


def _plain_stratum(one: Candidate) -> str:
    if one.answer is not None and one.answer.lower() in {"yes", "no"}:
        return one.answer.lower()
    return str(one.claim) if one.source == "contract_nli" else ""


def _guesses(candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    words = CountVectorizer(ngram_range=(1, 2), min_df=2, binary=True, token_pattern=r"[^\s]+")
    model = make_pipeline(words, MultinomialNB(alpha=0.5, fit_prior=False))
    texts = [str(one.claim or f"{one.question} {one.answer}") for one in candidates]
    labels = np.array([one.label for one in candidates])
    groups = [one.keys[0] for one in candidates]
    guessed = cross_val_predict(model, texts, labels, groups=groups, cv=GroupKFold(_FOLDS), method="predict_proba")
    return np.asarray(guessed, dtype=np.float64)[:, 1]


def _length(text: str) -> str:
    return f"len_{min(len(text.split()), 30)}"


def blind_auroc(items: Iterable[SliceItem]) -> dict[str, float]:
    """Cross-validated AUROC of a bag-of-words logistic regression by `source/task`, folds split by group.

    About .5 where only reading the evidence helps; below .5 where twins are parted only by the evidence.
    """
    tables: dict[str, list[SliceItem]] = defaultdict(list)
    for item in items:
        tables[f"{item.source}/{item.task}"].append(item)
    return {name: _auroc(found) for name, found in sorted(tables.items()) if _enough(found)}


def _enough(items: list[SliceItem]) -> bool:
    return (
        len(items) >= FEWEST
        and len({item.label for item in items}) == 2
        and len({item.group for item in items}) >= _FOLDS
    )


def _auroc(items: list[SliceItem]) -> float:
    model = make_pipeline(
        CountVectorizer(ngram_range=(1, 2), min_df=2, binary=True, token_pattern=r"[^\s]+"),
        MaxAbsScaler(),
        LogisticRegression(C=0.3, max_iter=300),
    )
    labels = np.array([item.label for item in items])
    groups = [item.group for item in items]
    texts = [blind_text(item) for item in items]
    scores = cross_val_predict(model, texts, labels, groups=groups, cv=GroupKFold(_FOLDS), method="predict_proba")
    return float(roc_auc_score(labels, np.asarray(scores)[:, 1]))
