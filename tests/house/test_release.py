"""A release has one version everywhere, and the project's URLs follow from one variable."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import isr_rag

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://example.org/somebody/isr-rag"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare_release", ROOT / ".github/prepare_release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, release: ModuleType) -> Path:
    """A copy of what a release reads and writes."""
    for path in release.distributions():
        settings = tomllib.loads(path.read_text("utf-8"))
        homes = [path, path.with_name("README.md"), ROOT / "CHANGELOG.md"]
        if "version" not in settings["project"]:
            homes.append(path.parent / settings["tool"]["hatch"]["version"]["path"])
        for home in homes:
            copy = tmp_path / home.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(home, copy)
    return tmp_path


def test_all_distributions_and_the_citation_have_one_version(release: ModuleType) -> None:
    assert {release.version_of(path) for path in release.distributions()} == {isr_rag.__version__}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == isr_rag.__version__


def test_the_tag_sets_the_urls_of_every_distribution(release: ModuleType, tree: Path) -> None:
    release.prepare(f"v{isr_rag.__version__}", REPOSITORY, tree)
    paths = release.distributions(tree)
    assert len(paths) == 8
    for path in paths:
        urls = tomllib.loads(path.read_text("utf-8"))["project"]["urls"]
        assert {"Homepage", "Source", "Issues", "Changelog", "Documentation"} == set(urls)
        assert all(url.startswith(REPOSITORY) for url in urls.values())
    with pytest.raises(ValueError, match="set already"):
        release.prepare(f"v{isr_rag.__version__}", REPOSITORY, tree)


def test_the_tag_makes_every_link_of_a_readme_one_that_an_index_can_show(release: ModuleType, tree: Path) -> None:
    tag = f"v{isr_rag.__version__}"
    release.prepare(tag, REPOSITORY, tree)
    found = 0
    for path in release.distributions(tree):
        readme = path.with_name("README.md").read_text("utf-8")
        for link in re.findall(r"\[[^\]]*\]\(([^()#\s]+)(?:#[^()]*)?\)", readme):
            home, _, file = link.partition(f"/{tag}/")
            assert home in (f"{REPOSITORY}/blob", f"{REPOSITORY}/raw") and (ROOT / file).exists(), link
            found += 1
    assert found > 50
    assert f"({REPOSITORY}/raw/{tag}/docs/pictures/audit.png)" in (tree / "README.md").read_text("utf-8")


def test_another_tag_changes_nothing_and_says_what_differs(release: ModuleType, tree: Path) -> None:
    before = [path.read_bytes() for path in release.distributions(tree)]
    with pytest.raises(SystemExit, match=re.escape(f"pyproject.toml is {isr_rag.__version__}")):
        release.prepare("v99.0.0", REPOSITORY, tree)
    assert [path.read_bytes() for path in release.distributions(tree)] == before


def test_the_paper_is_named_where_its_sections_are_cited() -> None:
    title = "Predictable Compression Failures: Order Sensitivity and Information Budgeting"
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["preferred-citation"]
    assert paper["title"].startswith(title)
    assert [author["family-names"] for author in paper["authors"]] == ["Chlon", "Karim", "Awada"]
    for text in ((ROOT / "README.md").read_text("utf-8"), isr_rag.__doc__ or ""):
        assert title in " ".join(text.split())
        assert all(author["family-names"] in text for author in paper["authors"])
