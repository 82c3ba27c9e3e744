"""From lists of first tokens to bounds that hold whatever the server left out."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isr_rag.errors import ServerReplyError, install_command
from isr_rag.scorers.remote.replies import mass_bounds, read_reply, renormalise, scores_listed


def completion(top: dict[str, float], **usage: Any) -> dict[str, Any]:
    first = max(top, key=top.__getitem__) if top else "x"
    logprobs = {"tokens": [first], "token_logprobs": [top.get(first, -1.0)], "top_logprobs": [top]}
    return {"choices": [{"logprobs": logprobs}], "usage": usage}


def chat(top: dict[str, float]) -> dict[str, Any]:
    entries = [{"token": token, "logprob": value} for token, value in top.items()]
    return {"choices": [{"logprobs": {"content": [{**entries[0], "top_logprobs": entries}]}}]}


YES_NO = (("1", " 1"), ("0", " 0"))


def bfloat16(value: float) -> float:
    """A number rounded as a server that computes in bfloat16 rounds it."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 256), exponent - 8)


AS_SENT: dict[str, Callable[[float], float]] = {
    "whole": float,
    "2 decimals": lambda value: round(value, 2),
    "3 decimals": lambda value: round(value, 3),
    "bfloat16": bfloat16,
}


@given(
    st.lists(st.floats(-12.0, 3.0), min_size=6, max_size=12),
    st.integers(1, 12),
    st.sampled_from(list(AS_SENT)),
    st.integers(0, 11),
    st.integers(0, 2),
    st.sets(st.integers(0, 11), max_size=3),
)
def test_bounds_hold_the_truth_for_every_list(
    logits: list[float], k: int, form: str, drawn: int, short: int, masked: set[int]
) -> None:
    texts = ["1", " 1", "0", " 0", "The", "\n", *(f"t{i}" for i in range(len(logits) - 6))]
    values = np.array(logits) - np.logaddexp.reduce(logits)
    truth = {text: float(values[i]) for i, text in enumerate(texts)}
    probable = sorted(texts, key=truth.__getitem__, reverse=True)
    listed = dict.fromkeys(probable[: max(1, k - short)])
    if not short:  # the one that was drawn is listed beside the most probable
        listed[texts[drawn % len(texts)]] = None
    top = {text: -9999.0 if i in masked else AS_SENT[form](truth[text]) for i, text in enumerate(listed)}
    if sum(map(math.exp, top.values())) > 1.02 or max(top.values()) == -9999.0:
        return  # no list that is read
    low, high = mass_bounds(read_reply(completion(top)), YES_NO, k)
    masses = [math.exp(truth["1"]) + math.exp(truth[" 1"]), math.exp(truth["0"]) + math.exp(truth[" 0"])]
    assert (low <= np.array(masses) + 1e-9).all() and (np.array(masses) <= high + 1e-9).all()
    if low.any():
        least, most = renormalise(low, high)
        share = masses[0] / sum(masses)
        assert least[0] - 1e-9 <= share <= most[0] + 1e-9
        assert least[1] - 1e-9 <= 1.0 - share <= most[1] + 1e-9


def test_a_token_listed_for_having_been_drawn_bounds_no_other() -> None:
    first = read_reply(completion({"1": math.log(0.4), "0": math.log(0.35), "x": math.log(0.001)}))
    _, high = mass_bounds(first, (("1",), ("0", " 0")), 2)  # " 0" may have the rest
    assert high[1] == pytest.approx(0.35 + 0.249, abs=1e-5)


def test_both_styles_of_reply_say_the_same() -> None:
    top = {"1": -0.5, "0": -1.5, "Ġ1": -3.0}
    assert read_reply(completion(top)).top == read_reply(chat(top)).top


def test_variants_of_a_label_are_summed() -> None:
    first = read_reply(completion({"1": math.log(0.4), "Ġ1": math.log(0.2), "▁0": math.log(0.1), "x": math.log(0.05)}))
    low, _ = mass_bounds(first, YES_NO, 4)
    np.testing.assert_allclose(low, [0.6, 0.1])


def test_a_label_outside_the_list_reaches_from_0_to_the_lowest_listed() -> None:
    first = read_reply(completion({"1": math.log(0.6), "x": math.log(0.1), "y": math.log(0.02)}))
    low, high = mass_bounds(first, (("1",), ("0",)), 3)
    assert low[1] == 0.0 and high[1] == pytest.approx(0.02)
    least, most = renormalise(low, high)
    assert (least[0], most[0]) == pytest.approx((0.6 / 0.62, 1.0))
    scores = scores_listed([first], (("1",), ("0",)), 3)
    assert scores.passes == 1 and scores.bounds is not None and np.exp(scores.logprobs[0, 0]) == pytest.approx(least[0])


def test_a_list_shorter_than_asked_bounds_by_what_it_leaves_over() -> None:
    first = read_reply(completion({"1": math.log(0.6), "x": math.log(0.1)}))
    _, high = mass_bounds(first, (("1",), ("0",)), 5)
    assert high[1] == pytest.approx(0.3, abs=1e-5)


def test_masked_entries_are_not_read_as_impossible() -> None:
    first = read_reply(completion({"1": math.log(0.6), "0": -9999.0}))
    _, high = mass_bounds(first, (("1",), ("0",)), 2)
    assert high[1] == pytest.approx(0.4, abs=1e-5)


def test_no_label_at_all_is_an_error_and_no_half() -> None:
    first = read_reply(completion({"The": -0.1, "A": -3.0}))
    with pytest.raises(ServerReplyError, match="no label is among"):
        renormalise(*mass_bounds(first, YES_NO, 2))


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [],
        {},
        {"choices": []},
        {"choices": [1]},
        {"choices": [{"logprobs": None}]},
        {"choices": [{"logprobs": {}}]},
        {"choices": [{"logprobs": {"content": []}}]},
        {"choices": [{"logprobs": {"content": [{"token": "1", "logprob": -0.1}]}}]},
        {"choices": [{"logprobs": {"tokens": ["1"], "token_logprobs": [None], "top_logprobs": [{"1": -1.0}]}}]},
        {"choices": [{"logprobs": {"tokens": [], "token_logprobs": [], "top_logprobs": []}}]},
        {"choices": [{"logprobs": {"tokens": ["1"], "token_logprobs": [-1.0], "top_logprobs": ["1"]}}]},
        completion({"1": math.nan}),
        completion({"1": 3.0}),
        completion({"1": "high"}),  # type: ignore[dict-item]
        completion({"1": True}),
        completion({"1": math.inf}),
        completion({"1": -0.1, "0": -0.1}),
        {"choices": [{"logprobs": {"content": [{"token": 1, "logprob": -0.1, "top_logprobs": []}]}}]},
        {"choices": [completion({"1": -0.1})["choices"][0]] * 2},
        {"choices": [completion({"1": -0.1})["choices"][0] | {"finish_reason": "content_filter"}]},
        completion({"1": -0.1}) | {"error": {"message": "stopped"}},
    ],
)
def test_replies_that_are_no_distribution_are_errors(reply: object) -> None:
    with pytest.raises(ServerReplyError):
        read_reply(reply)


def response(**fields: Any) -> dict[str, Any]:
    listed = chat({"1": -0.1, "0": -2.5})["choices"][0]["logprobs"]["content"]
    message = {"type": "message", "content": [{"type": "output_text", "text": "1", "logprobs": listed}]}
    return {"status": "completed", "output": [message], **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "failed", "error": {"code": "server_error", "message": "stopped"}},
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
        {"status": "cancelled"},
        {"status": "in_progress", "incomplete_details": None},
        {"output": [{"type": "function_call", "name": "search"}, *response()["output"]]},
    ],
)
def test_responses_that_failed_or_do_not_begin_with_text_are_errors(fields: dict[str, Any]) -> None:
    ended = response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})  # as was asked for
    assert read_reply(response()).top == read_reply(ended).top
    with pytest.raises(ServerReplyError, match=r"no whole answer|begin with text"):
        read_reply(response(**fields))


def test_what_only_reads_replies_needs_no_client_and_a_scorer_says_which_extra_it_needs() -> None:
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "import isr_rag.scorers.remote.replies, isr_rag.scorers.remote.prompts\n"
        "from isr_rag.errors import MissingDependencyError\n"
        "try: from isr_rag.scorers.remote import remote_scorer\n"
        "except MissingDependencyError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install_command("server") in done.stdout
