"""What is put into a report is text: no markup of it works."""

from __future__ import annotations

import re

from isr_rag._util.text import in_markdown

HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:b) ![c](http://d) *e* `f` \x1b[31m\ng"


def test_nothing_in_a_text_is_markup() -> None:
    shown = in_markdown(HOSTILE)
    assert "\n" not in shown and "\x1b" not in shown
    assert not re.search(r"(?<!\\)[<\[\]*`]", shown)
    assert in_markdown("a share in 0..1, plain_name") == "a share in 0..1, plain_name"
