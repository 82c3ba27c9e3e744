"""Documents as evidence, over the rounds of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document
from haystack.tracing.tracer import tracer
from jinja2 import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from isr_rag import Action, Decision, ISRGate as CoreGate
from isr_rag.core.evidence import Chunk, one_line
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.gate.adapters import asked, not_alone, unquoted

OUTPUTS: dict[str, Any] = {
    "abstained": list[Document],
    "acquire": str,
    "trail": dict[str, Any],
    "decision": dict[str, Any],
}
"""Names and types of what both components send on; `answered` is each one's own."""

KEY = "isr"
"""Where a decision is in the metadata of a document."""

DOCUMENT_TEMPLATE = "{{ document.content }}"
"""How a prompt renders a document by default."""


class DocumentTemplate:
    """Renders documents as a prompt does.

    Args:
        template: Jinja, with the document as `document`.

    Raises:
        ConfigurationError: if it is no template.
    """

    def __init__(self, template: str) -> None:
        try:
            self._template = SandboxedEnvironment(autoescape=False).from_string(template)
        except TemplateError as error:
            raise ConfigurationError(f"document_template is not a Jinja template: {error}") from error

    def chunk(self, document: Document) -> Chunk:
        """A document as a chunk: the text that the model reads; empty for one without text.

        Raises:
            InvalidInputError: if the template cannot render the document.
        """
        if document.content is None:
            return Chunk("")
        try:
            return Chunk(self._template.render(document=document))
        except Exception as error:  # whatever the template's expressions raise
            raise InvalidInputError(f"document_template cannot render a document: {error}") from error


class Round:
    """One round of retrieval: the documents it found, after those of the earlier rounds of the run.

    Args:
        query: the question.
        documents: what this round found.
        trail: what the component's own output of that name carried here; None at the first round.
        rendering: how the prompt renders a document.
        rounds: rounds that one run may take.

    Raises:
        InvalidTypeError: for documents of another type.
    """

    def __init__(
        self,
        query: str,
        documents: Sequence[Document],
        trail: dict[str, Any] | None,
        rendering: DocumentTemplate,
        rounds: int,
    ) -> None:
        for document in documents:
            if not isinstance(document, Document):
                raise InvalidTypeError(f"documents must be haystack.Document, not {type(document).__name__}")
        earlier: list[Document] = [] if trail is None else trail["documents"]
        self.query, self.rounds = query, rounds
        self.decisions: list[dict[str, Any]] = [] if trail is None else trail["decisions"]
        known = {one_line(rendering.chunk(document).text) for document in earlier}
        new = [document for document in documents if one_line(rendering.chunk(document).text) not in known]
        self.documents = [*earlier, *new]
        self.nothing_new = bool(self.decisions) and not new
        chunks = (rendering.chunk(document) for document in self.documents)
        self.evidence = [chunk for chunk in chunks if one_line(chunk.text)]

    def item(self, answer: str | None = None) -> dict[str, Any]:
        """The item for a core gate."""
        more = len(self.decisions) + 1 < self.rounds
        return {"question": self.query, "evidence": self.evidence, "answer": answer, "can_acquire": more}

    def decide(self, gate: CoreGate, answer: str | None = None) -> Decision:
        """What the gate decides; a question that does not stand alone and a round without news are abstentions.

        Raises:
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        made = self._early(gate, answer)
        if made is None:
            with unquoted(answer):
                made = gate.decide_batch([self.item(answer)])[0]
        return asked(made, self.query, answer)

    async def adecide(self, gate: CoreGate, answer: str | None = None) -> Decision:
        """As `decide`, without blocking the event loop."""
        made = self._early(gate, answer)
        if made is None:
            with unquoted(answer):
                made = (await gate.adecide_batch([self.item(answer)]))[0]
        return asked(made, self.query, answer)

    def _early(self, gate: CoreGate, answer: str | None) -> Decision | None:
        """The decision for which nothing has to be scored."""
        if self.nothing_new:
            return replace(Decision.from_dict(self.decisions[-1]), action=Action.ABSTAIN)
        return not_alone(gate, self.query, answer)

    def outputs(self, decision: Decision) -> dict[str, Any]:
        """What every component sends on: the decision, and the branch of an abstention or of a further round."""
        plain = decision.to_dict()
        if (span := tracer.current_span()) is not None:
            span.set_tags({f"isr.{name}": plain[name] for name in ("action", "reason", "p_ref", "isr", "seconds")})
        if decision.action is Action.ACQUIRE:
            trail = {"documents": self.documents, "decisions": [*self.decisions, plain]}
            return {"acquire": self.query, "trail": trail, "decision": plain}
        if decision.action is Action.ABSTAIN:
            return {"abstained": self.annotated(decision), "decision": plain}
        return {"decision": plain}

    def annotated(self, decision: Decision) -> list[Document]:
        """Copies that carry the decision in their metadata; the retriever's own documents stay as they are."""
        plain = decision.to_dict()
        return [replace(document, meta={**document.meta, KEY: plain}) for document in self.documents]
