"""Errors keep their type and what they say on the way from one process to another."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from isr_rag.core.scorer import PartialScoresError, Scores
from isr_rag.errors import MissingDependencyError, ScorerError, install_command, needed_for


def test_a_missing_dependency_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MissingDependencyError("the gate", "torch", "local")))
    assert isinstance(error, MissingDependencyError)
    assert install_command("local") in str(error)


@pytest.mark.parametrize("broken", ["raise ImportError('libnothing.so')", "from numpy import nothing_of_the_kind"])
def test_a_package_that_is_there_and_broken_is_not_called_missing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_of_ours.py").write_text(broken, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with (
        pytest.raises(MissingDependencyError, match=r"is there but fails to import .*nothing") as caught,
        needed_for("it", "local"),
    ):
        importlib.import_module("broken_of_ours")
    assert install_command("local") in str(caught.value)
    with pytest.raises(MissingDependencyError, match="'numpy', which is there"), needed_for("it", "local"):
        importlib.import_module("numpy.nothing_of_the_kind")
    with (
        pytest.raises(MissingDependencyError, match="'nothing_of_the_kind', which is not installed"),
        needed_for("it", "local"),
    ):
        importlib.import_module("nothing_of_the_kind")


def test_partial_scores_survive_pickling_with_what_did_arrive() -> None:
    error = pickle.loads(pickle.dumps(PartialScoresError("1 of 2", [ScorerError("lost"), Scores(np.zeros((1, 2)), 1)])))
    assert isinstance(error, PartialScoresError) and str(error) == "1 of 2"
    assert isinstance(error.outcomes[0], ScorerError)
    assert isinstance(error.outcomes[1], Scores)


def test_a_checkout_is_installed_and_no_index_is_asked_for_a_name_that_anybody_may_have() -> None:
    assert install_command(None) == "pip install '.', in a checkout of isr-rag"
    assert install_command("ray", "isr-rag-of-nobody") == "pip install '.[ray]', in a checkout of isr-rag-of-nobody"
