"""Gates for LangChain and LangGraph: answer only from evidence that carries the answer.

Every name is imported when it is first used: the middleware needs `langchain`, the graph needs `langgraph`, and
`ISRDecisionModel` and `DecisionModelScorer` need langchain-core 1.8.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from langchain_isr.audit import ISRAudit
    from langchain_isr.chain import ISRChain
    from langchain_isr.chat_scorer import ChatModelScorer
    from langchain_isr.common import ISRAbstained
    from langchain_isr.compressor import ISRCompressor
    from langchain_isr.decision_models import DecisionModelScorer, ISRDecisionModel
    from langchain_isr.gate import ISRGate
    from langchain_isr.graph import ISRState, create_isr_graph, isr_node
    from langchain_isr.middleware import ISRMiddleware
    from langchain_isr.retriever import ISRRetriever

_HOMES = {
    "ChatModelScorer": ("chat_scorer", "langchain_core", "langchain-core"),
    "DecisionModelScorer": ("decision_models", "langchain_core.decisions", "langchain-core>=1.8"),
    "ISRAbstained": ("common", "langchain_core", "langchain-core"),
    "ISRAudit": ("audit", "langchain_core", "langchain-isr"),
    "ISRChain": ("chain", "langchain_core", "langchain-core"),
    "ISRCompressor": ("compressor", "langchain_core", "langchain-core"),
    "ISRDecisionModel": ("decision_models", "langchain_core.decisions", "langchain-core>=1.8"),
    "ISRGate": ("gate", "langchain_core", "langchain-core"),
    "ISRMiddleware": ("middleware", "langchain", "[agents]"),
    "ISRRetriever": ("retriever", "langchain_core", "langchain-core"),
    "ISRState": ("graph", "langgraph", "[graph]"),
    "create_isr_graph": ("graph", "langgraph", "[graph]"),
    "isr_node": ("graph", "langgraph", "[graph]"),
}

__all__ = [
    "ChatModelScorer",
    "ISRAbstained",
    "ISRAudit",
    "ISRChain",
    "ISRCompressor",
    "ISRGate",
    "ISRRetriever",
    "__version__",
]


def _installed(package: str) -> bool:
    """Whether a package, or a module directly inside one, can be imported; nothing is imported to find out."""
    name, _, module = package.partition(".")
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return False
    if spec is None or not module:
        return spec is not None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return any((folder / module).is_dir() or (folder / f"{module}.py").is_file() for folder in folders)


# A star import and tools that look at every name see only those that can be imported here.
if _installed("langchain_core.decisions"):
    __all__ += ["DecisionModelScorer", "ISRDecisionModel"]
if _installed("langchain"):
    __all__ += ["ISRMiddleware"]
if _installed("langgraph"):
    __all__ += ["ISRState", "create_isr_graph", "isr_node"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, package, requirement = _HOMES[name]
    try:
        value: object = getattr(importlib.import_module(f"langchain_isr.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(package):
            raise
        from isr_rag.errors import install_command

        extra = requirement.startswith("[")
        command = install_command(requirement[1:-1], "langchain-isr") if extra else f"pip install '{requirement}'"
        raise ImportError(f"{name} needs {error.name}, which is not installed. Install it with: {command}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
