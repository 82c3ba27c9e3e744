"""JSON from outside is read strictly, and what is wrong with it is a ValueError."""

from __future__ import annotations

import pytest

from isr_rag._util import strict_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "b": 2, "a": 3, "b": 4}', "'a' comes twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a' comes twice"),
        ("[" * 101 + "]" * 101, "nested more than 100 deep"),
        ('{"a":' * 101 + "1" + "}" * 101, "nested more than 100 deep"),
        ("[" * 200_000, "deep|Expecting"),
        ('[{"a":' * 200_000, "deep|Expecting"),
        ("1e999", "too large a number"),
        ("9" * 5000, "digits"),
        ("NaN", "not a JSON number"),
        ("", "Expecting value"),
    ],
)
def test_what_is_not_plain_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strict_json.loads(text)


def test_ordinary_nesting_is_read() -> None:
    assert strict_json.loads("[" * 100 + "]" * 100)
    assert strict_json.loads('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
