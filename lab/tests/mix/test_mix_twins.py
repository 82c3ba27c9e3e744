"""Twins keep nearly every word and are right about what follows from the evidence."""

from __future__ import annotations

import gzip
import json
import random
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("spacy", reason="spacy is not installed: pip install 'isr-lab[mix]'")

from isr_lab.mix import phrasing
from isr_lab.mix.annotate import INSTALL, PIPELINE, Annotated, annotate
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.phrasing import Forms
from isr_lab.mix.records import RowLog
from isr_lab.mix.twins import read_twins

pytestmark = pytest.mark.skipif(find_spec(PIPELINE) is None, reason=INSTALL)

FORMS = Forms(
    {"defeat": "defeated", "run": "ran", "buy": "bought"},
    {"defeat": "defeated", "run": "run", "buy": "bought"},
    {"run": "runs"},
)


def noted(text: str) -> Annotated:
    return next(annotate([text]))


@pytest.mark.parametrize(
    ("plain", "denied"),
    [
        ("Maria Lopez was elected mayor of Denver in 1990.", "Maria Lopez was not elected mayor of Denver in 1990."),
        ("Maria Lopez bought the old theatre in Denver.", "Maria Lopez did not buy the old theatre in Denver."),
    ],
)
def test_negation_is_added(plain: str, denied: str) -> None:
    assert phrasing.negate(noted(plain)) == denied


@pytest.mark.parametrize(
    "text",
    [
        "Maria Lopez never bought the old theatre in Denver.",
        "Maria Lopez bought some of the theatres in Denver.",
        "Maria Lopez bought the theatre because it was cheap.",
        "Half of the voters of Denver were women.",
    ],
)
def test_no_negation_is_added_where_its_scope_is_unsure(text: str) -> None:
    assert phrasing.negate(noted(text)) is None


@pytest.mark.parametrize(
    ("denied", "plain"),
    [
        ("Maria Lopez did not run for mayor of Denver.", "Maria Lopez ran for mayor of Denver."),
        ("The bridge in Denver was not opened in 1990.", "The bridge in Denver was opened in 1990."),
        ("The bridge in Denver was never opened.", "The bridge in Denver was opened."),
    ],
)
def test_negation_is_dropped(denied: str, plain: str) -> None:
    assert phrasing.affirm(noted(denied), FORMS) == plain


def test_negation_is_not_dropped_before_any() -> None:
    assert phrasing.affirm(noted("Maria Lopez did not run for any office in Denver."), FORMS) is None


def test_the_passive_keeps_the_roles_and_its_twin_turns_them() -> None:
    found = phrasing.turned_passive(noted("Brazil defeated Germany in the final."), FORMS)
    assert found == ("Germany was defeated by Brazil in the final.", "Brazil was defeated by Germany in the final.")


def test_symmetric_deeds_are_not_turned() -> None:
    assert phrasing.swapped_roles(noted("Maria Lopez married Anna Weber in Denver.")) == []


def test_swapped_roles_keep_every_word() -> None:
    note = noted("Maria Lopez succeeded Anna Weber as mayor of Denver.")
    swaps = phrasing.swapped_roles(note)
    assert [text for _, text in swaps] == ["Anna Weber succeeded Maria Lopez as mayor of Denver."]


def test_figures_are_exchanged_whole() -> None:
    found = phrasing.swapped_figures(noted("The club has 1,250 members and owns 12 courts in town."))
    assert found is not None and found[1] == "The club has 12 members and owns 1,250 courts in town."


def test_an_order_in_time_is_moved_and_turned() -> None:
    true, false = phrasing.order(noted("After the war ended in Denver, Maria Lopez opened a small theatre.")) or (
        "",
        "",
    )
    assert true == "Maria Lopez opened a small theatre after the war ended in Denver."
    assert false == "Maria Lopez opened a small theatre before the war ended in Denver."


@pytest.mark.parametrize(
    ("text", "stronger"),
    [
        ("The film was nominated for two awards in Denver.", "The film won two awards in Denver."),
        ("Some of the members left Denver.", "All of the members left Denver."),
        ("The park has more than 40 trees.", "The park has fewer than 40 trees."),
    ],
)
def test_scope_is_stretched(text: str, stronger: str) -> None:
    assert stronger in [found[1] for found in phrasing.scoped(noted(text))]


def test_a_film_that_also_won_is_left_alone() -> None:
    assert phrasing.scoped(noted("The film was nominated for two awards and won one.")) == []


def test_a_deed_in_frames_that_say_whether_it_was_done() -> None:
    done = phrasing.deed(noted("Maria Lopez bought the old theatre."), FORMS)
    assert done is not None
    assert done.statement == "Maria Lopez bought the old theatre."
    assert done.denied == "Maria Lopez did not buy the old theatre."
    frame = "{h}planned to {v}{r}, but never did."
    assert phrasing.in_frame(frame, done) == "Maria Lopez planned to buy the old theatre, but never did."


def test_every_frame_can_be_filled() -> None:
    done = phrasing.deed(noted("Maria Lopez bought the old theatre."), FORMS)
    assert done is not None
    for frame in [*(f[0] for f in phrasing.NOT_DONE), *(f[1] for f in phrasing.NOT_DONE), *phrasing.DONE]:
        assert "{" not in phrasing.in_frame(frame, done)
    for frame in [*(f[0] for f in phrasing.DENIED), *phrasing.ADMITTED]:
        assert frame.format(x="it rained").endswith(".")


SENTENCES = [
    "Maria Lopez is an American politician who was born in Denver in 1950.",
    "Maria Lopez defeated Anna Weber in the election of 1990 in Denver.",
    "Maria Lopez bought the old theatre of Denver in 1995.",
    "Maria Lopez did not run for mayor of Denver in 2001.",
    "Maria Lopez wrote 12 books and sold 40,000 copies in 1999.",
    "The theatre of Denver was opened by Anna Weber after the war had ended.",
]


def test_twins_share_their_evidence_and_differ_in_label(tmp_path: Path) -> None:
    rows = [
        {"title": f"Maria Lopez ({i})", "sent_id": place, "text": text.replace("Lopez", name)}
        for i, name in enumerate(("Lopez", "Stone", "Baker", "Young"))
        for place, text in enumerate(SENTENCES)
    ]
    folder = tmp_path / "corpus"
    folder.mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "wiki_sentences.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))

    def read() -> list[tuple[str, str | None, int, tuple[str, ...]]]:
        found = read_twins(ReaderInputs(tmp_path, RowLog(), random.Random("1")))
        return [(c.unit, c.claim, c.label, tuple(chunk.text for chunk in c.chunks)) for c in found]

    found = read()
    assert found == read(), "the same seed gives the same twins"
    plain = [one for one in found if one[0].startswith("twins/")]
    shown: dict[str, set[tuple[str, ...]]] = {}
    for unit, _, _, chunks in plain:
        shown.setdefault(unit, set()).add(chunks)
    assert plain and all(len(chunks) == 1 for chunks in shown.values()), "twins see the same chunks"
    assert {label for _, _, label, _ in plain} == {0, 1}
    assert all(1 <= len(chunks) <= 8 for _, _, _, chunks in plain)


def test_pages_held_out_give_no_twins(tmp_path: Path) -> None:
    rows = [{"title": "Maria Lopez", "sent_id": i, "text": text} for i, text in enumerate(SENTENCES)]
    (tmp_path / "corpus").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "corpus/wiki_sentences.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    inputs = ReaderInputs(tmp_path, RowLog(), random.Random("1"))
    assert read_twins(inputs, lambda passage: passage.title == "Maria Lopez") == []
