"""What a run ran on: for the record, and free of anything that names a person or a computer."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

from isr_rag import __version__
from isr_rag.scorers.machine import usable_cores

PACKAGES = (
    "numpy", "scipy", "scikit-learn", "statsmodels", "linearmodels", "venn-abers", "matplotlib", "torch",
    "transformers", "tokenizers", "openai", "ray",
)  # fmt: skip


def environment() -> dict[str, str]:
    """Python, machine and package versions, as plain text under plain names."""
    cores = usable_cores()
    found = {
        "Python": platform.python_version(),
        "Machine": f"{platform.system()} {platform.machine()}, {_processor()}, {cores} cores usable",
        "Packages": ", ".join([f"isr-rag {__version__}", *_versions()]),
    }
    torch = sys.modules.get("torch")  # if nothing has loaded it, nothing was computed with it here
    if torch is not None:
        found["Threads of torch"] = str(torch.get_num_threads())
        if torch.cuda.is_available():
            found["Accelerator"] = str(torch.cuda.get_device_name())
    return found


def _versions() -> list[str]:
    installed: list[str] = []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _processor() -> str:
    """The processor's name where the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "processor unknown"
