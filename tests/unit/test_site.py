"""The site of the documentation, as far as it is made without its generator; `make docs` builds it."""

import json
import re
import sys
from pathlib import Path

import pytest
from lxml import etree
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pallas.config.json_schema import schema_text
from pallas.surfaces.rest.endpoints import ENDPOINTS

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import build_site  # noqa: E402
import recording  # noqa: E402
import reference_pages  # noqa: E402

sys.path.remove(str(DOCS))


def test_every_page_is_in_the_menu_once() -> None:
    assert build_site.menu_mistakes() == []


def test_links_lead_to_the_places_of_the_site() -> None:
    places = {"README.md": "index.md", "docs/a.md": "a.md", "docs/tutorials/b.md": "tutorials/b.md"}
    text = "[a](docs/a.md#x), [b](docs/tutorials/b.md), [deploy/](deploy), [far](https://example.org)\n"
    text += "\n```md\n[kept](docs/a.md)\n```\n[![p](docs/images/run.svg)](docs/a.md)"
    expected = "[a](a.md#x), [b](tutorials/b.md), deploy/, [far](https://example.org)\n"
    expected += "\n```md\n[kept](docs/a.md)\n```\n[![p](images/run.svg)](a.md)"
    assert build_site.moved(text, "README.md", places) == expected
    assert build_site.moved("[home](../../README.md)", "docs/tutorials/b.md", places) == "[home](../index.md)"


@pytest.mark.parametrize("link", ["[x](docs/gone.md)", "![x](docs/images/gone.svg)"])
def test_a_link_to_nothing_is_an_error(link: str) -> None:
    with pytest.raises(SystemExit, match=r"README.md: there is no .*gone"):
        build_site.moved(link, "README.md", {"README.md": "index.md"})


def test_what_another_host_would_send_is_found() -> None:
    assert build_site.FOREIGN.search('<link rel="stylesheet" href="https://fonts.example/x.css">')
    assert build_site.FOREIGN.search('<script async src="https://cdn.example/x.js">')
    assert not build_site.FOREIGN.search('<script src="assets/x.js"></script> <a href="https://example.org">')


def test_the_reference_of_the_file_has_every_key() -> None:
    page, whole = reference_pages.agents_yaml(), json.loads(schema_text())
    owners = [whole, *whole["$defs"].values()]
    assert [
        key for owner in owners for key in owner.get("properties", ()) if f"\n| `{key}` | " not in page
    ] == []


def test_the_reference_of_the_file_says_what_a_change_of_each_key_does() -> None:
    lines = reference_pages.agents_yaml().splitlines()
    of_file, of_agent = (
        next(line for line in lines if line.startswith(f"| {keys} | `")).split(" | ")
        for keys in ("the file", "an agent")
    )
    assert "`sessions`" in of_file[1] and "`bind`" in of_file[3]
    assert "`depends_on`" in of_agent[1] and "`instance_scope`" in of_agent[2] and "`payload`" in of_agent[2]


def test_the_reference_of_the_api_has_every_endpoint() -> None:
    page = reference_pages.rest_api()
    shown = {f"### {each.method} {each.path.replace('{', '&#123;')}\n" for each in ENDPOINTS}
    assert {each for each in shown if each not in page} == set()


def test_the_reference_of_the_command_line_has_every_command_and_option() -> None:
    page = reference_pages.command_line()
    for part in (
        "## `pallas check`",
        "### `pallas check bearer`",
        "`-m, --message TEXT`",
        "`--attach URL`",
        "| `/set [name",
    ):
        assert part in page


def test_the_readme_is_short() -> None:
    assert len((DOCS.parent / "README.md").read_text("utf-8").split()) <= 900


@pytest.mark.parametrize("picture", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_small_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text("utf-8")
    assert len(text) < 500_000
    assert not re.search(r"url\(.?https?:|<script|<image|@import", text)


def test_a_recording_has_each_line_once_and_shows_each_frame_for_its_time() -> None:
    film = recording.Recording()
    still, red = Strip([Segment("a < b")]), Style(color="#ff0000", bgcolor="#0000ff", bold=True)
    film.add([still, still], 1.0)
    film.add([still, still], 1.0)
    film.add([still, Strip([Segment("  漢", red), Segment(" !", red)])], 3.0)
    svg = film.svg(10)
    etree.fromstring(svg)
    assert svg.count("a &lt; b</text>") == 1
    assert "0.000%{transform:translateX(0px)}40.000%{transform:translateX(-142px)}" in svg
    assert "animation:film 5s step-end infinite" in svg
    assert '<rect fill="#0000ff" x="0" width="73.6"' in svg
    assert '<text fill="#ff0000" font-weight="bold" x="24.4" y="18.5" textLength="48.8">漢 !</text>' in svg
    assert "prefers-reduced-motion){#film{animation:none;transform:translateX(-142px)}}" in svg
