"""What the tests share: a quiet deterministic setting, and the folder on the path, for its fakes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"  # a checkpoint may hold only what every deployment can read

sys.path.insert(0, str(Path(__file__).parent))
