"""What every trial came to, as a table for one's own analysis."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from isr_lab.experiments.trials import ScoredTrial
from isr_rag._util.files import write_atomically
from isr_rag.errors import MissingDependencyError

OutcomesFormat = Literal["jsonl", "parquet"]


def write_outcomes(outcomes: Sequence[ScoredTrial], folder: Path, form: OutcomesFormat) -> Path:
    """Write one row per trial: `trial` (its name), `log_odds` and `q` of g = 1 for each ordering, `passes`, and
    `facts` (a struct in Parquet, null where a trial lacks a fact that others have).

    Returns:
        `<folder>/outcomes.jsonl` or `<folder>/outcomes.parquet`; whole or not there.

    Raises:
        MissingDependencyError: for Parquet without pyarrow.
    """
    rows: list[dict[str, Any]] = [
        {
            "trial": outcome.name,
            "facts": dict(outcome.facts),
            "log_odds": list(outcome.log_odds),
            "q": [float(p) for p in outcome.q],
            "passes": outcome.passes,
        }
        for outcome in outcomes
    ]
    path = folder / f"outcomes.{form}"
    if form == "jsonl":
        lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        write_atomically(path, "".join(lines))
        return path
    require_parquet()
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    write_atomically(path, buffer.getvalue())
    return path


def require_parquet() -> None:
    """Fail before anything is scored rather than after.

    Raises:
        MissingDependencyError: if pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise MissingDependencyError("Parquet", "pyarrow", "ray", "isr-lab")
