"""The workbench in a real browser: opened by its address, used by keyboard, left running."""

from pathlib import Path

import pytest
from support.offline import offline_project
from support.web import CHROMIUM, browser, web_command

pytestmark = [
    pytest.mark.pty,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make system-packages)"),
]


@pytest.mark.slow
async def test_a_message_is_sent_and_its_answer_seen_in_a_browser(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "project", {"concierge": None}, "rules: [{say: I am at your service.}]")
    environment = {
        "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    async with web_command(str(root), environment=environment) as command:
        async with browser(tmp_path / "browser") as page:
            await page.goto(command.addresses[0])
            await page.until("Write to concierge")
            assert await page.evaluate("window.location.search") == ""  # the key is not in the address
            await page.type("hello from a browser")
            await page.until("hello from a browser")
            await page.enter()
            await page.until("you", "I am at your service.", "concierge answered in")
            await page.goto(command.addresses[0])  # used up, and not needed: the cookie is there
            await page.until("Write to concierge")
            await page.control("q")
            await page.until_true("document.body.classList.contains('-closed')")
            assert command.process.returncode is None  # the page and the fleet go on
            assert not [each for each in page.problems if "Security Policy" in each or "Uncaught" in each]
        async with browser(tmp_path / "stranger") as stranger:
            await stranger.goto(command.addresses[0])
            await stranger.until_true("document.body?.innerText.includes('each address works once')")
