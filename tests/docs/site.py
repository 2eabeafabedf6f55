"""Build the site of the documents: `make site`. Zensical reads mkdocs.yml; the rest is standard Markdown.

Copies docs/ to build/docs with the project's own pages next to it, builds build/site, publishes each page as Markdown
too, and writes llms.txt. Fails on a warning, a broken link, and a page that would load anything from another origin.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any, Final

import yaml

from tests.house.tree import ROOT
from wiretape.events.core.json_text import as_list, as_object, is_list

SOURCE: Final = ROOT / "build/docs"
SITE: Final = ROOT / "build/site"
#: Pages of the project that are not in docs/.
BESIDES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe|link(?! rel=\"canonical\"))\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
)


def repository() -> str:
    """Return the address of the repository, if pyproject.toml has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", "")).rstrip("/")


def copied(page: str, text: str) -> str:
    """Return the text of a page with links for the site; `page` is its place in the repository."""
    here = page.removeprefix("docs/")

    def link(found: re.Match[str]) -> str:
        words, (place, _, anchor) = found[1], found[2].partition("#")
        if not place or re.match(r"[a-z]+:", place):
            return found[0]
        target = normpath(f"{Path(page).parent.as_posix()}/{place}")
        if target.startswith("docs/") and (ROOT / target).is_file():
            new = relpath(target.removeprefix("docs/"), Path(here).parent.as_posix())
        elif target in BESIDES:
            new = relpath(target, Path(here).parent.as_posix())
        elif address := repository():
            new = f"{address}/blob/main/{target}"
        else:
            return words
        return f"[{words}]({new}{'#' * bool(anchor)}{anchor})"

    text = re.sub(r"^```(\w+) .*$", r"```\1", text, flags=re.MULTILINE)  # what tests want to know of a block
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def llms(menu: Any, title: str, about: str) -> str:
    """Return llms.txt: the menu, with links to the pages as Markdown."""
    lines = [f"# {title}", "", f"> {about}", ""]

    def walk(entries: Any, section: str) -> None:
        for entry in as_list(entries):
            ((name, value),) = as_object(entry).items() or [("", entry)]
            if is_list(value):
                lines.extend(["", f"## {name}", ""] if not section else [])
                walk(value, section or name)
            else:
                first, _, _ = (SOURCE / str(value)).read_text(encoding="utf-8").partition("\n")
                lines.append(f"- [{name or first.removeprefix('# ')}]({value})")

    walk(menu, "")
    return "\n".join([*lines, ""])


def main() -> None:
    for folder in (SOURCE, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    for name in BESIDES:
        shutil.copyfile(ROOT / name, SOURCE / name)
    pages = sorted(SOURCE.rglob("*.md"))
    for page in pages:
        place = page.relative_to(SOURCE).as_posix()
        whole = copied(place if place in BESIDES else f"docs/{place}", page.read_text(encoding="utf-8"))
        page.write_text(whole, encoding="utf-8")
    # Not in ROOT, where its cache would be .cache, which has the environments of other targets.
    shutil.copyfile(ROOT / "mkdocs.yml", ROOT / "build/mkdocs.yml")
    zensical = Path(sys.argv[1]).absolute()
    subprocess.run([zensical, "build", "--strict", "-f", "mkdocs.yml"], cwd=ROOT / "build", check=True)
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    for page in pages:
        target = SITE / page.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    (SITE / "llms.txt").write_text(
        llms(config["nav"], config["site_name"], config["site_description"]), encoding="utf-8"
    )
    foreign = {
        found[0]: page.relative_to(SITE)
        for page in SITE.rglob("*.html")
        for found in _LOADED.finditer(page.read_text(encoding="utf-8"))
    }
    assert not foreign, f"loaded from another origin: {foreign}"
    print(f"{len(pages)} pages in {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
