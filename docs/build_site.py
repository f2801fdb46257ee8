"""Build the site of the documentation: ``make docs`` writes it to ``build/docs/site``.

The pages are those of this folder, the README and a few others (``ELSEWHERE``), and the generated ones of
``reference_pages.py``. Zensical builds them strictly: a link to a page or a heading that is not there fails.
The status is also 1 when a page is not in the menu, when a picture is missing, or when a page would load
something from another host.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from reference_pages import PAGES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "docs"
CONFIG = HERE / "zensical.toml"
# Pages from outside this folder, and their names in the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "sample_project/README.md": "sample-project.md",
}
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
FOREIGN = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*rel=\"?(?:stylesheet|preconnect)\"?[^>]*https?:"
)


def sources() -> dict[str, str]:
    """Each file that becomes a page, by its path in the repository: its path in the site."""
    pages = (path.relative_to(HERE).as_posix() for path in HERE.rglob("*.md"))
    return {f"docs/{page}": page for page in sorted(pages)} | ELSEWHERE


def moved(text: str, source: str, places: dict[str, str]) -> str:
    """Return a page with the links of the site. A link to a file that the site does not have becomes text."""
    here = PurePosixPath(places[source]).parent

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match["target"].partition("#")
        # A picture may be the text of a link.
        text = LINK.sub(link, match["text"])
        if not target or ":" in target:
            return match[0]
        path = os.path.normpath(PurePosixPath(source).parent / target)
        if path in places:
            place = places[path]
        elif path.startswith("docs/") and (ROOT / path).is_file():
            place = path.removeprefix("docs/")
        elif match["image"]:
            raise SystemExit(f"{source}: there is no picture {target}")
        elif (ROOT / path).exists():
            return text
        else:
            raise SystemExit(f"{source}: there is no {target}")
        return f"{match['image']}[{text}]({os.path.relpath(place, here)}{mark}{anchor})"

    parts = FENCE.split(text)
    parts[::2] = (LINK.sub(link, part) for part in parts[::2])
    return "".join(parts)


def listed(menu: object) -> Iterator[str]:
    """The pages of the menu, at any depth."""
    if isinstance(menu, str):
        yield menu
    else:
        for each in menu.values() if isinstance(menu, dict) else menu if isinstance(menu, list) else ():
            yield from listed(each)


def menu_mistakes() -> list[str]:
    """What the menu lacks, and what it names that is not there."""
    menu = sorted(listed(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    pages = sorted([*sources().values(), *PAGES])
    return [
        f"docs/zensical.toml: {page} is {menu.count(page)} times in nav, and {pages.count(page)} times a page"
        for page in sorted({*menu, *pages})
        if menu.count(page) != pages.count(page)
    ]


def stage() -> None:
    """Write all that Zensical reads."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = sources()
    places = pages | {f"docs/{page}": page for page in PAGES}
    texts = {place: moved((ROOT / path).read_text("utf-8"), path, places) for path, place in pages.items()}
    for place, text in (texts | {name: page() for name, page in PAGES.items()}).items():
        (BUILD / "source" / place).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / "source" / place).write_text(text, "utf-8")
    shutil.copytree(HERE / "images", BUILD / "source" / "images")
    for path in HERE.glob("*.txt"):
        shutil.copy(path, BUILD / "source")
    shutil.copy(CONFIG, BUILD)


def main() -> int:
    """Build the site; returns the exit status."""
    if mistakes := menu_mistakes():
        print("\n".join(mistakes), file=sys.stderr)
        return 1
    stage()
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        print(done.stdout + done.stderr.partition("Traceback")[0], file=sys.stderr)
        return 1
    foreign = [path for path in (BUILD / "site").rglob("*.html") if FOREIGN.search(path.read_text("utf-8"))]
    for path in foreign:
        print(f"{path.relative_to(ROOT)}: loads something from another host", file=sys.stderr)
    print(f"{(BUILD / 'site' / 'index.html').relative_to(ROOT)}: {len(sources()) + len(PAGES)} pages")
    return bool(foreign)


if __name__ == "__main__":
    sys.exit(main())
