"""What the tests share: a quiet deterministic setting, and hypothesis profiles that fit a busy machine."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="isr-rag-state-")  # the secret of caches: not the user's own
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile(
    "default", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("ISR_RAG_HYPOTHESIS", "default"))
