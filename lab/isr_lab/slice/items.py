"""From a record to its items: supported, refuted, insufficient and outdated adjudications."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from isr_lab.slice.config import SliceConfig
from isr_lab.slice.contexts import (
    Assembler,
    Judge,
    cannot_support,
    distractors_of,
    draw_size,
    off_pages,
    without_answers,
)
from isr_lab.slice.drafts import Drafter
from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.schema import Kind, Provenance, SliceItem, Split
from isr_lab.slice.text import contains, fold, generator

TWIN_SHARE = 0.25
"""Share of the claims that also come without their gold pages."""
_BY_DEGREE = re.compile(
    r"\b(?:first|last|before|after|earlier|later|older|oldest|younger|youngest|newer|more|most|less|fewer|longer|"
    r"longest|larger|largest|bigger|biggest|higher|highest|taller|tallest|closer|farther|further|recently)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A record with its split, its BM25 hits (its split's, best first) and a sentence's score for its query."""

    record: Record
    split: Split
    group: str
    hits: Sequence[Sentence]
    score: Callable[[Sentence], float | None]


@dataclass(frozen=True, slots=True)
class _ItemPlan:
    """One item to be assembled."""

    construction: str
    kind: Kind
    support: Sequence[Sentence] = ()
    carriers: Sequence[Sentence] = ()
    allowed: Judge = lambda _: True
    answer: str | None = None
    source: str | None = None


class ItemMaker:
    """Makes the items of one record after the other."""

    def __init__(self, config: SliceConfig, assembler: Assembler, drafter: Drafter) -> None:
        self._config = config
        self._assembler = assembler
        self._drafter = drafter
        self.without_draft = 0

    def make(self, case: Case) -> list[SliceItem]:
        """All items of a record, or the one drawn for it when the configuration wants one."""
        record = case.record
        chance = generator(self._config.seed, "items", record.source, record.key)
        plans = list(self._plans(case, chance))
        if self._config.items == "one" and len(plans) > 1:
            plans = [_balanced(plans, chance)]
        size = draw_size(self._config, chance)
        items = (self._item(case, plan, size, chance) for plan in plans)
        return [item for item in items if item is not None]

    def _item(self, case: Case, plan: _ItemPlan, size: int, chance: random.Random) -> SliceItem | None:
        record = case.record
        pool = distractors_of(record, case.hits, plan.allowed, self._config.candidates)
        answers = record.answers if record.form != "claim" else ()
        context = self._assembler.assemble(plan.support, plan.carriers, pool, size, case.score, answers, chance)
        if not context.chunks:
            return None
        source = plan.source or record.source
        claim = record.form == "claim"
        return SliceItem(
            id=f"{source}:{record.key}:{plan.construction.replace(' ', '-').replace(',', '')}",
            source=source,
            split=case.split,
            group=case.group,
            claim=record.text if claim else None,
            question=None if claim else record.text,
            answer=plan.answer,
            label=1 if plan.kind == "supported" else 0,
            kind=plan.kind,
            chunks=context.chunks,
            support_spans=context.spans,
            layout=self._config.layout,
            provenance=Provenance(
                dataset=record.dataset,
                file=record.file,
                record=record.record,
                license=record.license,
                construction=plan.construction,
            ),
        )

    def _plans(self, case: Case, chance: random.Random) -> Iterator[_ItemPlan]:
        form = case.record.form
        if form == "claim":
            yield from _claim_plans(case.record, chance)
        elif form == "timed":
            yield from _timed_plans(case.record, chance)
        elif form == "stale":
            rival = case.record.rivals[0]
            yield _ItemPlan(
                "evidence older than the question",
                "outdated",
                support=rival.evidence,
                allowed=without_answers(case.record),
                answer=rival.answer,
            )
        elif form == "incomplete":
            yield from _incomplete_plans(case.record)
        else:
            yield from self._question_plans(case, chance)

    def _question_plans(self, case: Case, chance: random.Random) -> Iterator[_ItemPlan]:
        record = case.record
        if not record.gold:
            return
        clean = without_answers(record)
        yield _ItemPlan("true draft", "supported", record.gold, allowed=clean, answer=record.answers[0])
        evidence = [*record.own, *case.hits[:60]]
        draft = self._drafter.draw(record, case.split, [s for s in evidence if clean(s)], chance)
        if draft is None:
            self.without_draft += 1
        else:
            carriers = [draft.carrier] if draft.carrier else []
            yield _ItemPlan(
                f"false draft from {draft.origin}" if draft.origin != "flipped" else "false draft flipped",
                "refuted",
                record.gold,
                carriers,
                clean,
                draft.answer,
            )
        yield _ItemPlan("support present", "supported", record.gold, allowed=clean)
        yield from self._removed_plans(record, clean, chance)

    def _removed_plans(self, record: Record, clean: Judge, chance: random.Random) -> Iterator[_ItemPlan]:
        if record.form == "multihop":
            removed = _removed_fact(record)
            if removed is None:
                return
            name, page, kept = removed
            titles = {s.title or "" for s in record.gold if fold(s.title or "") == page}
            off = off_pages([page], (fold(title.split(" (")[0]) for title in titles))
            allowed: Judge = lambda s: off(s) and clean(s)  # noqa: E731
            yield _ItemPlan(name, "insufficient", (), kept, allowed, source="controls")
            yield _ItemPlan(f"{name}, with draft", "insufficient", (), kept, allowed, record.answers[0], "controls")
            return
        if chance.random() < 0.5:
            name, allowed = "answer sentences removed", clean
        else:
            name, off = "pages removed", off_pages(record.pages)
            allowed = lambda s: off(s) and clean(s)  # noqa: E731
        yield _ItemPlan(name, "insufficient", allowed=allowed)
        yield _ItemPlan(f"{name}, with draft", "insufficient", allowed=allowed, answer=record.answers[0])


def _claim_plans(record: Record, chance: random.Random) -> Iterator[_ItemPlan]:
    careful = cannot_support(record.text)
    if record.verdict == "NOT ENOUGH INFO":
        yield _ItemPlan("not enough info, retrieved evidence", "insufficient", allowed=careful)
        return
    kind: Kind = "supported" if record.verdict == "SUPPORTS" else "refuted"
    yield _ItemPlan("original", kind, record.gold)
    if chance.random() < TWIN_SHARE:
        off = off_pages(record.pages)
        yield _ItemPlan(
            "gold pages removed",
            "insufficient",
            allowed=lambda s: off(s) and careful(s),
            source="controls",
        )


def _removed_fact(record: Record) -> tuple[str, str, list[Sentence]] | None:
    """Which page's fact to take out, and what gold is left; None where the rest might still support the answer.

    Taking out the fact that leads to the answer, and leaving the one that states it, was tried: of 26 such items
    read, 11 were supported after all. So the fact with the answer goes. A comparison by a property ("which of
    them is a pianist") can be settled by ruling out the other one, a comparison by degree ("which is older") cannot.
    """
    answer = fold(record.answers[0])
    if len(record.pages) < 2:
        return None
    if answer in ("yes", "no"):  # one fact may settle a "no"
        return ("one of two compared facts removed", *_without(record, record.pages[-1])) if answer == "yes" else None
    bearing = [
        page
        for page in record.pages
        if any(fold(s.title or "") == page and contains(fold(s.text), answer) for s in record.gold)
    ]
    if len(bearing) != 1 or (record.answer_type == "comparison" and not _BY_DEGREE.search(record.text)):
        return None
    return ("answer fact removed", *_without(record, bearing[0]))


def _without(record: Record, page: str) -> tuple[str, list[Sentence]]:
    return page, [s for s in record.gold if fold(s.title or "") != page]


def _incomplete_plans(record: Record) -> Iterator[_ItemPlan]:
    """A gold page was never retrieved. Skipped when the answer can be read off what was."""
    clean, off = without_answers(record), off_pages(record.missing)
    if fold(record.answers[0]) not in ("yes", "no") and not all(map(clean, record.gold)):
        return
    allowed: Judge = lambda s: off(s) and clean(s)  # noqa: E731
    yield _ItemPlan("gold fact not retrieved", "insufficient", (), record.gold, allowed)
    yield _ItemPlan("gold fact not retrieved, with draft", "insufficient", (), record.gold, allowed, record.answers[0])


def _timed_plans(record: Record, chance: random.Random) -> Iterator[_ItemPlan]:
    clean = without_answers(record)
    if record.answers and record.gold:
        yield _ItemPlan("dated answer", "supported", record.gold, allowed=clean, answer=record.answers[0])
        yield _ItemPlan("dated support present", "supported", record.gold, allowed=clean)
    if not record.rivals:
        return
    rival = record.rivals[chance.randrange(len(record.rivals))]
    elsewhere = [s for s in rival.evidence if s not in record.gold]
    if record.answers and record.gold and (chance.random() < 0.5 or not elsewhere):
        yield _ItemPlan(
            "answer of another time, right one present", "outdated", record.gold, rival.evidence, clean, rival.answer
        )
    elif elsewhere and all(map(clean, elsewhere)):
        yield _ItemPlan("answer of another time, right one absent", "outdated", (), elsewhere, clean, rival.answer)
        if record.answers and record.gold:
            yield _ItemPlan("dated support removed", "insufficient", (), elsewhere, clean)


def _balanced(plans: Sequence[_ItemPlan], chance: random.Random) -> _ItemPlan:
    """One plan, supported or not with equal chance where both are there."""
    yes = [plan for plan in plans if plan.kind == "supported"]
    no = [plan for plan in plans if plan.kind != "supported"]
    group = yes if yes and (not no or chance.random() < 0.5) else no
    return group[chance.randrange(len(group))]
