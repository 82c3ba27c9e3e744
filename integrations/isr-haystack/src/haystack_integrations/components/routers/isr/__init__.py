"""Gates for Haystack: an answer goes out only when the retrieved evidence carries it, whatever its order."""

from __future__ import annotations

from haystack_integrations.components.routers.isr.chat_generator import ISRChatGenerator
from haystack_integrations.components.routers.isr.draft_gate import ISRDraftGate
from haystack_integrations.components.routers.isr.gate import ISRGate

__all__ = ["ISRChatGenerator", "ISRDraftGate", "ISRGate"]
