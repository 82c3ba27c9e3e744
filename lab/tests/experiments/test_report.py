"""A report is one page that needs nothing else, and its Markdown twin says the same."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from isr_lab.experiments.report import (
    Entry,
    Report,
    cell_text,
    html,
    markdown,
    write_index,
    write_report,
)
from isr_lab.experiments.sections import Figure, Section, Table
from isr_lab.plots import new_figure, png
from isr_rag.errors import InvalidInputError


def picture() -> bytes:
    figure = new_figure(4.0, 2.5)
    figure.subplots().plot([0, 1], [0, 1])
    return png(figure)


@pytest.fixture(scope="module")
def report() -> Report:
    table = Table(
        'Slope of |R| on log n (probability), "banded" & <uniform>.',
        ("Family", "paper", "here", "holds | fails"),
        [("banded", 0.377, 0.0123456, True), ("uniform", None, 3059, "n/a | *"), ("flat", -1e-7, math.inf, False)],
        "A note with <angle> brackets.",
    )
    parts = ["First paragraph: a < b & c > d.", table, Figure("fit", "The fit [nats], n < 60.", picture())]
    return Report(
        "Experiment 1: dispersion",
        "Does order matter?",
        ["It does: 1 < 2.", "A second one."],
        [Section("Slopes", parts)],
    )


class Page(HTMLParser):
    """Tags with their attributes, and the text outside the style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and data.strip():
            self.texts.append(" ".join(data.split()))


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(report: Report) -> None:
    page = Page(html(report))
    assert page.open == []
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("src") or "data:").startswith("data:")
    assert "url(" not in html(report) and "@import" not in html(report)


def test_pictures_stand_in_the_page_with_their_caption_as_text(report: Report) -> None:
    image = next(attributes for tag, attributes in Page(html(report)).tags if tag == "img")
    assert base64.b64decode((image["src"] or "").removeprefix("data:image/png;base64,")) == picture()
    assert image["alt"] == "The fit [nats], n < 60."
    assert (image["width"], image["height"]) == ("384", "240"), "4 by 2.5 inches, at 96 pixels an inch"


def test_text_is_text_whatever_it_holds(report: Report) -> None:
    texts = Page(html(report)).texts
    assert "First paragraph: a < b & c > d." in texts
    assert 'Slope of |R| on log n (probability), "banded" & <uniform>.' in texts
    hostile = Report("<script>alert(1)</script>", "", ['"><img src=x onerror=y>'], [])
    assert "script" not in {tag for tag, _ in Page(html(hostile)).tags}
    assert "img" not in {tag for tag, _ in Page(html(hostile)).tags}


def test_a_printer_keeps_tables_and_figures_together(report: Report) -> None:
    page = html(report)
    assert "@media print" in page and "break-inside: avoid" in page and "table-header-group" in page


def test_tables_have_captions_and_columns_of_numbers_stand_right(report: Report) -> None:
    page = Page(html(report))
    headers = [attributes for tag, attributes in page.tags if tag == "th"]
    assert [attributes.get("class") for attributes in headers] == [None, "num", "num", None]
    assert [tag for tag, _ in page.tags].count("caption") == 1
    assert [text for text in page.texts if text in ("—", "0.377", "0.01235", "3059", "∞", "-1e-07")] == [
        "0.377",
        "0.01235",
        "—",
        "3059",
        "-1e-07",
        "∞",
    ]


def test_the_twin_says_the_same(report: Report) -> None:
    twin = markdown(report)
    for text in Page(html(report)).texts:
        bare = re.sub(r"\\(.)", r"\1", twin)
        assert text in bare or text.removesuffix(".") in bare, text
    assert "![The fit \\[nats\\], n \\< 60.](figures/fit.png)" in twin
    rows = [line for line in twin.splitlines() if line.startswith("|")]
    assert re.fullmatch(r"\|:-+\|-+:\|-+:\|:-+\|", rows[1])
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (0, "0"),
        (123456789, "123456789"),
        (0.12345, "0.1235"),
        (12.0, "12"),
        (12345.678, "12350"),
        (99999.0, "100000"),
        (-0.00001234, "-1.234e-05"),
        (-0.0, "0"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "—"),
        (True, "yes"),
        ("0.123456", "0.123456"),
    ],
)
def test_numbers_have_four_significant_digits(value: str | int | float | None, text: str) -> None:
    assert cell_text(value) == text


@given(st.floats(-1e14, 1e14))
def test_a_printed_number_is_the_number_to_four_digits(value: float) -> None:
    assert float(cell_text(value)) == pytest.approx(value, rel=5.01e-4)


def test_pictures_of_an_older_report_go(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md", "figures"}
    renamed = Report("t", "", [], [Section("s", [Figure("other", "c", picture())])])
    write_report(renamed, tmp_path)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["other.png"]


def test_figures_of_one_name_and_ragged_tables_are_refused(tmp_path: Path) -> None:
    twice = [Figure("same", "a", picture()), Figure("same", "b", picture())]
    with pytest.raises(InvalidInputError, match="names of their own"):
        write_report(Report("t", "", [], [Section("s", twice)]), tmp_path)
    with pytest.raises(InvalidInputError, match="more or fewer cells"):
        write_report(Report("t", "", [], [Section("s", [Table("c", ("a", "b"), [(1,)])])]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_index_links_to_reports_and_repeats_their_summaries(tmp_path: Path) -> None:
    write_index("All <runs>", [Entry("a b/dose", "Dose & effect", "model; 3 passes", ["One."])], tmp_path)
    page = Page((tmp_path / "index.html").read_text("utf-8"))
    assert [attributes["href"] for tag, attributes in page.tags if tag == "a"] == ["a%20b/dose/report.html"]
    assert {"All <runs>", "Dose & effect", "model; 3 passes", "One."} <= set(page.texts)
    assert "## [Dose & effect](a%20b/dose/report.md)" in (tmp_path / "index.md").read_text("utf-8")
