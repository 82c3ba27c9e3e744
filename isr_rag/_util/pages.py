"""HTML from the templates beside the code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from isr_rag._util.text import printable


def rendered(template: str, **values: Any) -> str:
    """A template of this package, by its path in it, filled in with texts that are escaped and safe to show."""
    return str(_environment().get_template(template).render(**values)).strip() + "\n"


@lru_cache(maxsize=1)
def _environment() -> Any:
    """Texts are shown without what would control a terminal or turn the writing around."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def shown(value: Any) -> Any:
        return printable(value, None) if isinstance(value, str) and not hasattr(value, "__html__") else value

    plain: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=PackageLoader("isr_rag", ""), autoescape=True, finalize=shown, **plain)
    environment.filters["line"] = lambda text: " ".join(printable(str(text), None).split())
    return environment
