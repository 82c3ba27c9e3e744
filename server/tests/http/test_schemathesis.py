"""Requests made up by Schemathesis from the server's own description, against a running server."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("schemathesis", reason="pip install './server[dev]'")

import hypothesis
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance
from server.tests.http.hostile import KEY, Server, serving

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("ISR_RAG_SCHEMATHESIS", "40"))
"""Requests of each phase and path."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(key=KEY, limits={"wrong_keys": 100_000}) as found:  # which are tried, too
        yield found


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_every_path_keeps_its_description(server: Server, mode: schemathesis.GenerationMode) -> None:
    """No 5xx, and every response has a status, a type and a form that the description names."""
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    schema.config.generation.update(with_security_parameters=False)  # the key below would overwrite what is made up
    sent: Counter[str] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        assert operation is not None

        @hypothesis.settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            # That a claim or a question is needed, and what a document is, no schema says.
            case.call_and_validate(
                headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=[positive_data_acceptance]
            )
            sent[case.path] += 1

        try:
            ask()
        except hypothesis.errors.Unsatisfiable:  # a path that takes nothing takes nothing wrong
            assert mode.is_negative
    assert sent["/v1/decide"] >= EXAMPLES // 2 and sent["/v1/audit"] >= EXAMPLES // 2, sent
    assert server.ask("GET", "/healthz")[0] == 200 and server.process.poll() is None
