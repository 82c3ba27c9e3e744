"""Strata of cases whose labels should be balanced, so that the wording alone tells little of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from isr_lab.mix.records import Candidate

FEWEST = 60
"""Items below which nothing is guessed."""
GUESSABLE = frozenset({"covidfact", "eraser_fever"})
"""Sources whose claims were written or edited in ways that give their labels away, with items to spare."""
_FOLDS = 5
_BANDS = 12


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
