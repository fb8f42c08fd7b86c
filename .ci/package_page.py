"""Makes README.md the page of a package, in a release's checkout: `python .ci/package_page.py OWNER/REPOSITORY TAG`.

A package index shows the README without the files beside it, so links and pictures lead to the tag in the repository,
whose name is known where it is built. pyproject.toml gets the addresses that the index shows beside the page.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>[^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:|#")


def page(text: str, repository: str, tag: str) -> str:
    """The README with absolute links, to what the tag has."""

    def absolute(link: re.Match[str]) -> str:
        if ELSEWHERE.match(link["target"]):
            return link[0]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}(https://github.com/{repository}/{kind}/{tag}/{link['target']})"

    return LINK.sub(absolute, text)


def urls(repository: str, tag: str) -> str:
    """The addresses of the project, for pyproject.toml."""
    address = f"https://github.com/{repository}"
    return (
        f'\n[project.urls]\nRepository = "{address}"\nDocumentation = "{address}/blob/{tag}/docs/index.md"\n'
        f'Changelog = "{address}/blob/{tag}/CHANGELOG.md"\nIssues = "{address}/issues"\n'
    )


if __name__ == "__main__":
    readme, project = Path("README.md"), Path("pyproject.toml")
    readme.write_text(page(readme.read_text(encoding="utf-8"), *sys.argv[1:]), encoding="utf-8")
    project.write_text(project.read_text(encoding="utf-8") + urls(*sys.argv[1:]), encoding="utf-8")
