"""What both components share: their settings, their gate, and how a pipeline writes them down."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeAlias

from haystack import default_from_dict, default_to_dict
from haystack.core.errors import SerializationError
from haystack.utils import deserialize_callable, deserialize_component_inplace, serialize_callable

from haystack_integrations.components.routers.isr.evidence import DOCUMENT_TEMPLATE, DocumentTemplate
from isr_rag import ISRGate as CoreGate
from isr_rag.core.settings import Settings, check_count
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.gate.acquisition import gate_of_round
from isr_rag.gate.adapters import TEMPLATES, Place, default_h_star, gate_for

GateOrFactory: TypeAlias = CoreGate | Callable[[], CoreGate] | None

_warming = threading.Lock()


class Gating:
    """The settings of a component, and the gate that decides, which is made when the pipeline warms up."""

    place: ClassVar[Place] = "before"
    """Whether the component decides before drafting or after it."""

    def __init__(
        self,
        gate: GateOrFactory = None,
        *,
        h_star: float | None = None,
        rounds: int = 1,
        document_template: str = DOCUMENT_TEMPLATE,
    ) -> None:
        """Set how the component decides.

        Args:
            gate: the gate of `isr_rag` that decides, or a function that makes it: give a function of a module, and the
                pipeline can be written to a file. By default the embedded model with its calibration, at h* = 0.2
                before drafting and at 0.05 after it.
            h_star: overrides the gate's target hallucination rate, in (0, 1).
            rounds: how many rounds for evidence one run of the pipeline may take, >= 1. While there is a round left,
                `acquire` takes the place of `abstained`; h* is split over the rounds, unless the calibration covers
                whole loops. For more than one, lead the component's `trail` back to it through a `BranchJoiner`: it
                carries what earlier rounds found.
            document_template: how your prompt renders a document, in Jinja: the gate judges exactly that text.

        Raises:
            ConfigurationError: for a setting out of range or an invalid template, or if no evidence could ever lead
                to an answer. Where a function makes the gate, that is known when the pipeline warms up.
            InvalidTypeError: for a gate that is neither one of `isr_rag` nor a function.
        """
        if gate is not None and not isinstance(gate, CoreGate) and not callable(gate):
            kind = f"{type(gate).__module__}.{type(gate).__name__}"
            raise InvalidTypeError(
                f"gate must be an isr_rag.ISRGate or a function that makes one, not {kind}: "
                "from isr_rag import ISRGate as Gate, and give gate=Gate(...)"
            )
        if gate is None:
            default_h_star(self.place, h_star, rounds=rounds)
        check_count("rounds", rounds, 1)
        Settings(h_star=0.5 if h_star is None else h_star)  # checks it
        self.gate, self.h_star, self.rounds, self.document_template = gate, h_star, rounds, document_template
        self.rendering = DocumentTemplate(document_template)
        self._core = self._at_each_round(gate) if isinstance(gate, CoreGate) else None

    def _at_each_round(self, gate: CoreGate | None) -> CoreGate:
        """The gate that decides at each round."""
        whole = gate_for(self.place, gate, h_star=self.h_star, rounds=self.rounds)
        return gate_of_round(whole, self.rounds, TEMPLATES[self.place])

    @property
    def core(self) -> CoreGate:
        """The gate that decides, made where that has not been done.

        Raises:
            InvalidTypeError: if the function made something else.
            ISRError: as `isr_rag.ISRGate`.
        """
        with _warming:
            if self._core is None:
                made = None if self.gate is None else self.gate()  # type: ignore[operator]  # not a CoreGate here
                if self.gate is not None and not isinstance(made, CoreGate):
                    raise InvalidTypeError(f"the function for gate made a {type(made).__name__}, not isr_rag.ISRGate")
                self._core = self._at_each_round(made)
            return self._core

    def _check_trail(self) -> None:
        """Refuse a search again of which nothing comes back: each round would be the first, without end."""
        outputs: dict[str, Any] = getattr(self, "__haystack_output__")._sockets_dict  # noqa: B009  # of the decorator
        if self.rounds > 1 and outputs["acquire"].receivers and not outputs["trail"].receivers:
            raise ConfigurationError(
                "acquire leads to another search and trail leads nowhere, so that every round would count as the "
                "first: connect trail to a BranchJoiner(dict[str, Any]), and its value to trail of this component"
            )

    def warm_up(self) -> None:
        """Make the gate, which loads the embedded model where that is the scorer; a second call does nothing.

        Raises:
            ConfigurationError: in a pipeline that connects `acquire` without `trail`.
        """
        self._check_trail()
        _ = self.core

    async def warm_up_async(self) -> None:
        """As `warm_up`, without blocking the event loop."""
        self._check_trail()
        if self._core is None:
            await asyncio.to_thread(Gating.warm_up, self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A gate is shared, not copied: it holds a model and locks. So is the template, which does not change.
        memo |= {id(value): value for value in (self.gate, self._core, self.rendering)}
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def to_dict(self) -> dict[str, Any]:
        """The component as plain data, as `Pipeline.dump` writes it.

        Raises:
            SerializationError: if the gate is an object: only a function of a module can be written down.
        """
        if isinstance(self.gate, CoreGate):
            raise SerializationError(
                "an isr_rag.ISRGate cannot be written to a file: give gate=a function of a module that makes it, "
                "or leave it out for the embedded model"
            )
        return default_to_dict(
            self,
            gate=None if self.gate is None else serialize_callable(self.gate),
            h_star=self.h_star,
            rounds=self.rounds,
            document_template=self.document_template,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`. A function's module must be on Haystack's allowlist (`allowed_modules=[...]`).

        Raises:
            DeserializationError: if the function cannot be found, its module is not allowed, or the generator of an
                `ISRChatGenerator` cannot be made.
        """
        settings = dict(data.get("init_parameters", {}))
        if settings.get("gate") is not None:
            settings["gate"] = deserialize_callable(settings["gate"])
        if "chat_generator" in settings:
            deserialize_component_inplace(settings, key="chat_generator")
        made = default_from_dict(cls, {**data, "init_parameters": settings})
        assert isinstance(made, cls)
        return made
