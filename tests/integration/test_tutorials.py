"""The tutorials do what they say: each of their files and commands, in the order of the page."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from support import scripted
from support.tutorial import Tutorial

from pallas.cli.init import init
from pallas.cli.project_ports import USUAL
from pallas.scripted.script_file import load_script

BY_KEY = "from-a-bug-to-a-test"
PAGES = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_a_tutorial_has_the_ports_that_init_gives_to_a_first_project(page: str) -> None:
    ports = re.findall(r"\b24\d{3}\b", (PAGES / f"{page}.md").read_text("utf-8"))
    assert [port for port in ports if not USUAL <= int(port) < USUAL + 20] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    "page",
    sorted(path.stem for path in PAGES.glob("*.md") if path.stem not in ("local-model", BY_KEY)),
)
def test_a_tutorial_does_what_it_says(page: str, tmp_path: Path) -> None:
    with Tutorial(tmp_path) as reader:
        reader.follow((PAGES / f"{page}.md").read_text("utf-8"))


@pytest.mark.slow
def test_the_project_for_coding_agents_is_whole(tmp_path: Path) -> None:
    with Tutorial(tmp_path) as reader:
        reader.follow((PAGES.parent / "llms.txt").read_text("utf-8"))


@pytest.mark.slow
async def test_the_one_of_a_local_model_does_what_it_says(tmp_path: Path) -> None:
    """A script is the model's server: it is on another port than the page's."""
    assert init(tmp_path / "offline") == 0
    page = (PAGES / "local-model.md").read_text("utf-8")
    async with scripted.served(load_script(tmp_path / "offline" / "model.yaml")) as model:
        with Tutorial(tmp_path, {"http://127.0.0.1:8080/v1": model.url}) as reader:
            await asyncio.to_thread(reader.follow, page)


@pytest.mark.slow
async def test_the_one_by_key_does_what_it_says(tmp_path: Path) -> None:
    with Tutorial(tmp_path) as reader:
        await reader.follow_keys((PAGES / f"{BY_KEY}.md").read_text("utf-8"))
