"""Evidence sets: which sentences stand around the support, in what number and order."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from isr_lab.slice.config import SliceConfig
from isr_lab.slice.pool import OPEN, Pool
from isr_lab.slice.records import Record, Sentence
from isr_lab.slice.schema import SliceChunk, SupportSpan
from isr_lab.slice.text import STOPWORDS, TokenCap, contains, fold, stems

_CAPITALISED = re.compile(r"[A-Z0-9][\w'’.\-]*(?: (?:of|the|de|and) (?=[A-Z])| (?=[A-Z0-9]))?")
_WEAK_DEPTH, _WEAK_MOST = 30, 3
Judge = Callable[[Sentence], bool]


@dataclass(frozen=True, slots=True)
class Context:
    """Chunks in retrieval order, and the characters that carry the support."""

    chunks: tuple[SliceChunk, ...]
    spans: tuple[SupportSpan, ...]


def draw_size(config: SliceConfig, chance: random.Random) -> int:
    """Number of chunks of an item."""
    low, high = config.n
    if config.n_tail and config.tail_to > high and chance.random() < config.n_tail:
        return chance.randint(high + 1, config.tail_to)
    return chance.randint(low, high)


class Assembler:
    """Puts evidence sets together under a token cap and a size."""

    def __init__(self, config: SliceConfig, cap: TokenCap) -> None:
        self._config = config
        self._cap = cap

    def assemble(
        self,
        support: Sequence[Sentence],
        carriers: Sequence[Sentence],
        distractors: Sequence[Sentence],
        size: int,
        score: Callable[[Sentence], float | None],
        answers: Sequence[str],
        chance: random.Random,
    ) -> Context:
        """One evidence set: all support, then the carriers, then distractors up to `size` chunks.

        Half of the free places go to the best-ranked distractors, the rest to any of them. Chunks are in the
        order of their scores, as a retriever returns them.

        Args:
            support: sentences that settle the item; all are kept.
            carriers: other sentences that must be there.
            distractors: candidates, best first.
            size: chunks wanted; more when the support alone is larger, fewer when candidates run out.
            score: retrieval score of a sentence.
            answers: texts whose place in a support chunk is the support span; whole chunks where none stands.
            chance: the only source of choice.
        """
        size = min(size, self._config.most_chunks)
        chosen = [(sentence, True) for sentence in support]
        chosen += [(s, False) for s in carriers if s not in support]
        room = size - sum(len(self._pieces(sentence)) for sentence, _ in chosen)
        taken = {(sentence.title, sentence.text) for sentence, _ in chosen}
        free = [s for s in distractors if (s.title, s.text) not in taken]
        best, rest = free[: max(0, (room + 1) // 2)], free[max(0, (room + 1) // 2) :]
        chance.shuffle(rest)
        for sentence in (*best, *rest):
            pieces = len(self._pieces(sentence))
            if room <= 0:
                break
            if pieces <= room:
                chosen.append((sentence, False))
                room -= pieces
        ranked = sorted(chosen, key=lambda pair: (-(score(pair[0]) or 0.0), pair[0].title or "", pair[0].text))
        return self._chunks(ranked, score, answers)

    def _pieces(self, sentence: Sentence) -> tuple[str, ...]:
        return self._cap.pieces(sentence.text)

    def _chunks(
        self,
        ranked: Iterable[tuple[Sentence, bool]],
        score: Callable[[Sentence], float | None],
        answers: Sequence[str],
    ) -> Context:
        chunks: list[SliceChunk] = []
        spans: list[SupportSpan] = []
        for sentence, supports in ranked:
            pieces = self._pieces(sentence)
            for piece in pieces:
                if supports:
                    start, end = _span(piece, answers)
                    spans.append(SupportSpan(chunk=len(chunks), start=start, end=end))
                chunks.append(
                    SliceChunk(
                        text=piece,
                        title=sentence.title,
                        sentence_id=sentence.sentence_id,
                        is_support=supports,
                        score=score(sentence),
                        snapshot=sentence.snapshot,
                    )
                )
        return Context(tuple(chunks), tuple(spans))


def _span(text: str, answers: Sequence[str]) -> tuple[int, int]:
    for answer in answers:
        match = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE)
        if match:
            return match.span()
    return 0, len(text)


def distractors_of(record: Record, hits: Sequence[Sentence], allowed: Judge, limit: int) -> list[Sentence]:
    """A record's own other sentences and its BM25 hits, best first, those it may use, at most `limit`.

    Own sentences that BM25 did not return follow in their own order.
    """
    gold = {fold(sentence.text) for sentence in record.gold}
    own = {(s.title, s.text): s for s in record.own}
    ranked: list[Sentence] = []
    seen = set(gold)
    for sentence in (*hits, *own.values()):
        key = fold(sentence.text)
        if key in seen or not allowed(sentence):
            continue
        seen.add(key)
        ranked.append(sentence)
        if len(ranked) >= limit:
            break
    return ranked


def weak_support(record: Record, pool: Pool) -> Record | None:
    """The record with the best retrieved sentences that hold its answer as gold; None when there are none.

    A sentence counts only if it shares two content words with the question (all, where the question has fewer).
    """
    words = stems(record.text)
    answers = [fold(answer) for answer in record.answers]
    gold: list[Sentence] = []
    for sentence in pool.ranking(pool.scores(record.text), OPEN, _WEAK_DEPTH):
        shared = words & (stems(sentence.text) | stems(sentence.title or ""))
        text = fold(sentence.text)
        if len(shared) >= min(2, len(words)) and any(contains(text, answer) for answer in answers):
            gold.append(sentence)
    if not gold:
        return None
    gold = gold[:_WEAK_MOST]
    present = [a for a in record.answers if any(contains(fold(s.text), fold(a)) for s in gold)]
    pages = [*record.pages, *(fold(sentence.title or "") for sentence in gold)]
    return replace(
        record,
        gold=tuple(gold),
        answers=tuple(dict.fromkeys([*present, *record.answers])),
        pages=tuple(dict.fromkeys(pages)),
    )


def without_answers(record: Record) -> Judge:
    """Judges sentences that hold none of the accepted answers (yes and no excepted: they stand anywhere)."""
    answers = [fold(answer) for answer in record.answers]
    answers = [answer for answer in answers if answer and answer not in ("yes", "no")]
    return lambda sentence: not any(contains(fold(sentence.text), answer) for answer in answers)


def off_pages(pages: Iterable[str], names: Iterable[str] = ()) -> Judge:
    """Judges sentences that are of other pages than these (folded titles) and hold none of the folded names."""
    gone, names = frozenset(pages), sorted(set(names))

    def judge(sentence: Sentence) -> bool:
        title = fold(sentence.title or "")
        text = f"{title} {fold(sentence.text)}"
        return title not in gone and not any(contains(text, name) for name in names)

    return judge


def cannot_support(claim: str) -> Judge:
    """Judges sentences that cannot make a claim true on their own.

    A sentence is out when it names what the claim is about and shares a further distinctive word with it, or
    when it shares half of the claim's content words.
    """
    spans = [stems(match) for match in _spans(claim)]
    subject = spans[0] if spans else frozenset[str]()
    words = stems(claim)
    rest = words - subject

    def judge(sentence: Sentence) -> bool:
        text = stems(sentence.text)
        both = text | stems(sentence.title or "")
        if 2 * len(words & both) >= len(words) and not words & both <= subject:
            return False
        return not (subject & both and rest & text)

    return judge


def _spans(claim: str) -> list[str]:
    found: list[str] = []
    current = ""
    for match in _CAPITALISED.finditer(claim):
        current += match.group()
        if not match.group().endswith(" "):
            found.append(current)
            current = ""
    return [span for span in found if fold(span) and fold(span) not in STOPWORDS]
