"""The public API as a listing: one line per name that an `__all__` exports, with signatures; run to renew it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from griffe import Alias, Attribute, Class, Function, GriffeLoader, Module, Object

ROOT = Path(__file__).resolve().parents[2]
LISTING = Path(__file__).with_name("listing.txt")
PACKAGES = {
    "isr_rag": ROOT,
    "haystack_integrations.components.routers.isr": ROOT / "integrations/haystack-isr",
    "langchain_isr": ROOT / "integrations/langchain-isr",
    "llama_index.postprocessor.isr": ROOT / "integrations/llama-index-postprocessor-isr",
}


@cache
def listing() -> str:
    """The whole listing, read from the source without importing it."""
    lines: list[str] = []
    for name, folder in PACKAGES.items():
        loader = GriffeLoader(search_paths=[folder, ROOT])
        package = loader.load(name)
        loader.resolve_aliases(external=False)
        assert isinstance(package, Module)
        for module in sorted(_modules(package), key=lambda found: found.path):
            for public in sorted(str(export) for export in module.exports or ()):
                lines += _lines(f"{module.path}.{public}", module.members[public])
    return "".join(f"{line}\n" for line in lines)


def _modules(module: Module) -> Iterator[Module]:
    """The modules with an `__all__`, a package before what is in it; what begins with an underscore is private."""
    if module.exports is not None:
        yield module
    for inner in module.modules.values():
        if not inner.is_alias and not inner.name.startswith("_"):
            yield from _modules(inner)


def _lines(path: str, member: Object | Alias) -> Iterator[str]:
    try:
        found = member.final_target if isinstance(member, Alias) else member
    except Exception:  # griffe's errors of an alias share no public base: its target is another distribution's
        yield path
        return
    if isinstance(found, Function):
        yield path + _signature(found)
    elif isinstance(found, Class):
        bases = ", ".join(str(base) for base in found.bases)
        yield f"{path}: class({bases})"
        for name, inner in sorted(found.members.items()):
            if name == "__init__" and isinstance(inner, Function):
                yield f"{path}.__init__{_signature(inner)}"
            elif not name.startswith("_"):
                yield from _lines(f"{path}.{name}", inner)
    elif isinstance(found, Attribute) and found.annotation is not None:
        default = "" if found.value is None or "property" in found.labels else f" = {found.value}"
        yield f"{path}: {found.annotation}{default if found.parent and found.parent.is_class else ''}"
    else:
        yield path


def _signature(function: Function) -> str:
    parts: list[str] = []
    star = False
    for parameter in function.parameters:
        kind = parameter.kind.value if parameter.kind else ""
        if kind == "keyword-only" and not star:
            parts.append("*")
            star = True
        marks = {"variadic positional": "*", "variadic keyword": "**"}
        star = star or kind == "variadic positional"
        annotation = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and kind not in marks else ""
        parts.append(f"{marks.get(kind, '')}{parameter.name}{annotation}{default}")
    returns = f" -> {function.returns}" if function.returns is not None else ""
    return f"({', '.join(parts)}){returns}"


if __name__ == "__main__":
    LISTING.write_text(listing(), "utf-8")
