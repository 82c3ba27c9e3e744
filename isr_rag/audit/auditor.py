"""An audit, step by step: what is asked about the statements of an answer, and what follows from the decisions.

An audit is a generator that asks for decisions and scores where it needs them, so that sync, async, batched and single
audits are the same. It goes through all answers of a call in stages:

1. Is each statement supported, and is it contradicted?
2. The nearest chunks alone: which of them carries it? Where effects are wanted, every chunk alone and taken out.
3. The nearest sentences of the chunk that carries it, alone.
4. Everything that was read without the sentence that carries it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from isr_rag.audit.account import audit_of
from isr_rag.audit.asking import Ask, AuditItem, Judge, Steps, Told
from isr_rag.audit.calibration import AuditCalibration, calibration_of
from isr_rag.audit.citing import by_itself, candidates, cited, note_without, sets_to_take_out, unproven, without_cited
from isr_rag.audit.effects import effects_of_chunks, effects_of_order
from isr_rag.audit.judging import conclude, contradicted, judge, plain_question
from isr_rag.audit.progress import AnswerInProgress, q_of
from isr_rag.audit.statement import Verdict
from isr_rag.batch import Item
from isr_rag.decision import Decision

_ALL = slice(None)


def steps(
    gate: Judge,
    items: Sequence[AuditItem | Mapping[str, Any]],
    *,
    citations: bool = True,
    effects: bool = False,
    calibration: AuditCalibration | None = None,
    parts: slice = _ALL,
    split: bool = True,
) -> Steps:
    """The audits of one call, as a generator that asks and is told.

    Args:
        gate: decides.
        items: the answers.
        citations: also look for the sentences that carry each statement, and ask without them.
        effects: also ask what each chunk does, and for models that see it the order.
        parts: which parts of the answers are judged; the others stay as they are.
        split: judge coordinate clauses by themselves, where the parser of the extra "claims" is installed.
        calibration: of the verdicts and of whole answers; by default the one that comes with the scorer, if there is.

    Raises:
        ConfigurationError: if the calibration is not one of the gate's scorer and focus.
        InvalidInputError: for an empty answer, or unknown or missing arguments.
        InvalidTypeError: for arguments of the wrong type.
    """
    started = time.perf_counter()
    if calibration is None:
        calibration = calibration_of(gate.scorer.identity, gate.focus)
    else:
        calibration.check_belongs(gate.scorer.identity, gate.focus)
    answers = [AnswerInProgress(item, gate, calibration, parts, split=split) for item in items]
    everyone = [(answer, one) for answer in answers for one in answer.judged.values()]
    passes = dict.fromkeys(map(id, answers), 0)

    def ask(questions: Sequence[tuple[AnswerInProgress, Item]]) -> Generator[Ask, Told, Sequence[Decision]]:
        if not questions:
            return []
        decisions, _ = yield Ask(items=tuple(item for _, item in questions))
        for (answer, _), decision in zip(questions, decisions, strict=True):
            passes[id(answer)] += decision.passes
        return decisions

    # 1. supported, and contradicted?
    with_evidence = [(a, one) for a, one in everyone if one.read]
    both: list[tuple[AnswerInProgress, Item]] = [(a, {"evidence": a.of(one), **one.asked}) for a, one in everyone]
    both += [(a, contradicted(one, a.of(one))) for a, one in with_evidence]
    told = yield from ask(both)
    supports, refutes = told[: len(everyone)], told[len(everyone) :]
    denied = {id(one): decision for (_, one), decision in zip(with_evidence, refutes, strict=True)}
    for (answer, one), decision in zip(everyone, supports, strict=True):
        judge(answer, one, decision, denied.get(id(one)))
    found = [(a, one) for a, one in everyone if a.is_looked_into(one)]

    # 2. the nearest chunks alone, with those that markers name; the next ones only where none of these carries it
    for wave in range(2):
        near = [(a, one, chunk) for a, one in found for chunk in a.near(one, wave)]
        alone = yield from ask([(a, plain_question(one, a.of(one, [chunk]))) for a, one, chunk in near])
        for (_, one, chunk), decision in zip(near, alone, strict=True):
            one.alone[chunk] = q_of(decision)
    joint = [(a, one, named) for a, one in found if (named := unproven(one))]
    together = yield from ask([(a, plain_question(one, a.of(one, named))) for a, one, named in joint])
    for (_, one, _), decision in zip(joint, together, strict=True):
        one.joint = q_of(decision)
    for answer, one in found:
        conclude(answer, one)
    found = [(a, one) for a, one in found if one.verdict is not Verdict.NOT_ENOUGH]
    if effects:
        yield from effects_of_chunks(with_evidence, ask)
        yield from effects_of_order([(a, one) for a, one in with_evidence if not a.invariant and len(one.read) > 1])

    if not citations:
        found = []
    # 3. the nearest sentences of the best chunk alone; the next ones only where none of these carries it
    for wave in range(2):
        looked = [(a, one, chunk, span) for a, one in found for chunk, span in candidates(a, one, wave)]
        single = yield from ask(
            [(a, plain_question(one, [by_itself(a, chunk, span)])) for a, one, chunk, span in looked]
        )
        for (_, one, chunk, span), decision in zip(looked, single, strict=True):
            one.sentences.append((chunk, span, q_of(decision)))
    for answer, one in found:
        one.citations = cited(answer, one)

    # 4. what was read without the sentences that carry it
    scrubbed = [
        (a, one, spans) for a, one in found if one.verdict is Verdict.SUPPORTED for spans in sets_to_take_out(one)
    ]
    rest = yield from ask([(a, {"evidence": without_cited(a, one, spans), **one.asked}) for a, one, spans in scrubbed])
    for (_, one, spans), decision in zip(scrubbed, rest, strict=True):
        note_without(one, spans, decision)

    seconds = time.perf_counter() - started
    return [audit_of(answer, passes[id(answer)], seconds) for answer in answers]
