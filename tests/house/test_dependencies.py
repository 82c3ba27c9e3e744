"""What is installed is pinned, its files are known by hash, and no major release of a library breaks an install."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [
    *(ROOT / part / "pyproject.toml" for part in (".", "server", "lab")),
    *ROOT.glob("integrations/*/pyproject.toml"),
]
STABLE = {"cachetools", "filelock", "platformdirs", "psutil", "pyarrow", "rich"}
"""Used through functions that several major releases left alone: a bound would only keep them from being updated."""
TOOLS = {"dev", "docs"}
"""Extras for those who work on the project: pinned by constraints.txt alone."""


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def requirements() -> list[tuple[str, Requirement]]:
    found: list[tuple[str, Requirement]] = []
    for path in PROJECTS:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        texts = [*project["dependencies"], *(text for name, own in extras.items() if name not in TOOLS for text in own)]
        found += [(str(path.relative_to(ROOT)), Requirement(text)) for text in texts]
    return [
        (path, r)
        for path, r in found
        if canonicalize_name(r.name) not in {"isr-rag", "isr-rag-server", "langchain-isr"}
    ]


def test_every_pin_has_the_hashes_of_its_files() -> None:
    text = (ROOT / "constraints.hashes.txt").read_text("utf-8").replace("\\\n", " ")
    hashed: dict[str, str] = {}
    for line in text.splitlines():
        name, version, hashes = re.fullmatch(r"([\w.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *", line).groups()  # type: ignore[union-attr]
        assert hashes
        hashed[canonicalize_name(name)] = version
    assert hashed == pinned(), "constraints.txt changed: renew the hashes (CONTRIBUTING.md)"


def test_no_dependency_is_open_to_a_major_release_that_could_break_it() -> None:
    open_ended = {
        f"{path}: {requirement}"
        for path, requirement in requirements()
        if canonicalize_name(requirement.name) not in STABLE
        and not any(specifier.operator in ("<", "<=", "==", "~=") for specifier in requirement.specifier)
    }
    assert not open_ended, "give an upper bound, or say in STABLE why there is none"


def test_what_is_pinned_is_what_is_allowed() -> None:
    pins = pinned()
    for path, requirement in requirements():
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{path}: {requirement} is not pinned in constraints.txt"
        assert requirement.specifier.contains(pins[name]), f"{path}: {requirement}, but {pins[name]} is pinned"


def listed(*files: str) -> set[str]:
    """The packages of lists with hashes."""
    text = "".join((ROOT / file).read_text("utf-8") for file in files)
    found = re.findall(r"^([\w.-]+)==\S+(?: ;.*?)? \\\n +--hash=sha256:[0-9a-f]{64}", text, flags=re.MULTILINE)
    assert len(found) == len(re.findall("==[0-9]", re.sub(" ;.*", "", text)))
    return set(map(canonicalize_name, found))


def needed(*wanted: str) -> set[str]:
    """What is installed for some requirements, by the metadata of what is installed here, without our own."""
    found, open_ = dict[str, set[str]](), list(map(Requirement, wanted))
    while open_:
        one = open_.pop()
        name = canonicalize_name(one.name)
        if name in found and one.extras <= found[name]:
            continue
        found.setdefault(name, set()).update(one.extras)
        try:
            needs = map(Requirement, metadata.requires(name) or ())
        except metadata.PackageNotFoundError:
            continue
        for other in needs:
            asked = [{"extra": extra} for extra in one.extras or {""}]
            if other.marker is None or any(other.marker.evaluate(extra) for extra in asked):
                open_.append(other)
    return {name for name in found if "isr" not in name.split("-")}


def test_everything_that_a_hashed_installation_needs_has_a_hash() -> None:
    image = needed("isr-rag[local,cli]", "isr-rag-server")
    assert not image - listed("deploy/requirements.txt", "deploy/torch.txt")
    adapters = ["langchain-isr[dev]", "llama-index-postprocessor-isr[dev]", "isr-haystack[dev]"]
    everything = needed(
        "isr-rag[all,dev,docs]", "isr-rag-server[ray]", "isr-lab[ray]", "isr-rag-conformance", *adapters
    )
    assert not everything - listed("constraints.hashes.txt", "deploy/torch.txt", "deploy/build.txt")
    assert {"hatchling", "editables"} <= listed("deploy/build.txt")


def test_every_list_of_hashes_has_the_versions_that_are_pinned() -> None:
    pins = pinned()
    for file in ("deploy/requirements.txt", "deploy/torch.txt", "deploy/build.txt", ".github/tools.txt"):
        text = (ROOT / file).read_text("utf-8")
        for name, version in re.findall(r"^([\w.-]+)==([^ ;\\]+)", text, flags=re.MULTILINE):
            assert pins.get(canonicalize_name(name), version) == version, f"{file}: renew it (CONTRIBUTING.md)"
