"""Prepare the tree of a release: the tag names every distribution's version, and the repository's URL is written in.

The repository has no home of its own written into it: the URLs of every `pyproject.toml`, and those of the links in the
READMEs that a package index shows, follow from one variable.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
URLS = {
    "Homepage": "{repository}",
    "Documentation": "{repository}/tree/{tag}/docs",
    "Source": "{repository}",
    "Issues": "{repository}/issues",
    "Changelog": "{repository}/blob/{tag}/CHANGELOG.md",
}


def distributions(root: Path = ROOT) -> list[Path]:
    """The `pyproject.toml` of every distribution, the product's first."""
    own = ["pyproject.toml", "server/pyproject.toml", "lab/pyproject.toml"]
    return [*(root / path for path in own), *sorted(root.glob("integrations/*/pyproject.toml"))]


def version_of(pyproject: Path) -> str:
    """The version that a distribution would be built with.

    Raises:
        ValueError: if the file that holds it names none.
    """
    settings = tomllib.loads(pyproject.read_text("utf-8"))
    if "version" in settings["project"]:
        return str(settings["project"]["version"])
    home = pyproject.parent / settings["tool"]["hatch"]["version"]["path"]
    found = re.search(r'^__version__ = "([^"]+)"', home.read_text("utf-8"), flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"{home} has no __version__")
    return found[1]


def with_urls(pyproject: str, repository: str, tag: str) -> str:
    """The text of a `pyproject.toml` with its table of URLs, which must not be there yet.

    Raises:
        ValueError: if it has one.
    """
    if "[project.urls]" in pyproject:
        raise ValueError("the project's URLs are set already")
    table = "".join(f'{name} = "{url.format(repository=repository, tag=tag)}"\n' for name, url in URLS.items())
    return f"{pyproject.rstrip()}\n\n[project.urls]\n{table}"


def with_links(readme: str, folder: str, repository: str, tag: str) -> str:
    """The text of a README in a folder of the repository, with links to other files of it as whole URLs."""

    def whole(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        return f"{link[1]}({repository}/{'raw' if link[1].startswith('!') else 'blob'}/{tag}/{path}{link[3] or ''})"

    return re.sub(r"(!?\[[^\]]*\])\((?![a-z]+:|#)([^()#\s]+)(#[^()\s]*)?\)", whole, readme)


def prepare(tag: str, repository: str, root: Path = ROOT) -> None:
    """Check the tag and write the URLs.

    Raises:
        SystemExit: if the tag is not the version of every distribution, or the changelog has no entry for it.
    """
    wrong = [f"{path.relative_to(root)} is {version_of(path)}" for path in distributions(root)
             if f"v{version_of(path)}" != tag]  # fmt: skip
    if f"\n## [{tag.removeprefix('v')}]" not in (root / "CHANGELOG.md").read_text("utf-8"):
        wrong.append("CHANGELOG.md has no entry")
    if wrong:
        raise SystemExit(f"the tag is {tag}, but {'; '.join(wrong)}")
    for path in distributions(root):
        path.write_text(with_urls(path.read_text("utf-8"), repository, tag), "utf-8")
        readme, folder = path.with_name("README.md"), path.parent.relative_to(root).as_posix()
        readme.write_text(with_links(readme.read_text("utf-8"), folder, repository, tag), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", required=True, help="for example v0.2.0")
    parser.add_argument("--repository", required=True, help="URL of the repository, without a closing slash")
    given = parser.parse_args()
    prepare(given.tag, given.repository)
