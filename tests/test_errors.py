"""Errors keep their type and what they say on the way from one process to another."""

from __future__ import annotations

import importlib.metadata
import json
import pickle

import numpy as np
import pytest

from isr_rag.core.scorer import PartialScoresError, Scores
from isr_rag.errors import MissingDependencyError, ScorerError, install_command


def test_a_missing_dependency_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MissingDependencyError("the gate", "torch", "local")))
    assert isinstance(error, MissingDependencyError)
    assert install_command("local") in str(error)


def test_partial_scores_survive_pickling_with_what_did_arrive() -> None:
    error = pickle.loads(pickle.dumps(PartialScoresError("1 of 2", [ScorerError("lost"), Scores(np.zeros((1, 2)), 1)])))
    assert isinstance(error, PartialScoresError) and str(error) == "1 of 2"
    assert isinstance(error.outcomes[0], ScorerError)
    assert isinstance(error.outcomes[1], Scores)


class Installed:
    """A distribution with what pip noted about where it came from (PEP 610)."""

    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return json.dumps(self.origin) if name == "direct_url.json" and self.origin else None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'isr-rag[ray]'"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "pip install --editable '/a b[ray]'"),
        ({"url": "file:///a", "dir_info": {}}, "pip install 'isr-rag[ray] @ file:///a'"),
        ({"url": "file:///a.whl", "archive_info": {}}, "pip install 'isr-rag[ray] @ file:///a.whl'"),
        (
            {"url": "https://example.org/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "lab"},
            "pip install 'isr-rag[ray] @ git+https://example.org/r@abc#subdirectory=lab'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    origin: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(origin))
    assert install_command("ray") == command


def test_of_what_was_never_installed_no_index_is_asked() -> None:
    assert install_command("ray", "isr-rag-of-nobody") == "pip install '.[ray]', in a checkout of isr-rag-of-nobody"
