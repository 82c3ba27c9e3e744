"""What a gate tells the instrumentation, and what it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.schema import NodeWithScore

from isr_rag import Decision, ISRError


class ISRDecisionEvent(BaseEvent):
    """A gate has decided.

    Attributes:
        decision: the decision as `isr_rag.Decision.to_dict` writes it: plain data.
    """

    decision: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """`ISRDecisionEvent`."""
        return "ISRDecisionEvent"


class AbstainedError(ISRError):
    """The evidence does not carry an answer, and the policy is to raise.

    Attributes:
        decision: why.
        nodes: the evidence that was not enough.
    """

    def __init__(self, decision: Decision, nodes: Sequence[NodeWithScore] = ()) -> None:
        super().__init__(decision, list(nodes))
        self.decision = decision
        self.nodes = list(nodes)

    def __str__(self) -> str:
        said = replace(self.decision, nearest=None).explain()  # no text of the evidence gets into a log
        return f"the gate abstained: {self.decision.reason.value}. {said}"
