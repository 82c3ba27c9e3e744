"""A hook of MkDocs: links to files outside `docs/` lead to the repository, whose address `REPOSITORY` gives.

On GitHub these links work as they are. Without an address their text is kept and the link dropped, since the site has
no such page. A link to nothing stays as it is, and the strict build fails on it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^()\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **kwargs: Any) -> str:
    """Rewrites the links of one page."""
    docs = Path(config["docs_dir"]).resolve()
    here = (docs / page.file.src_uri).parent
    repository = os.environ.get("REPOSITORY", "")

    def rewritten(match: re.Match[str]) -> str:
        text, link = match.groups()
        name, _, anchor = link.partition("#")
        target = (here / name).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return match.group()
        if not repository:
            return text
        path = target.relative_to(docs.parent).as_posix()
        return f"[{text}]({repository}/blob/main/{path}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(rewritten, markdown)
