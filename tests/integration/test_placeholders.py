"""What instructions hold between braces: misspelt names and URLs without a text are said with their line."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fast_agent.core.instruction
import pytest
from support.live import agent_module, running, write_project

from pallas.cli.check import check
from pallas.config.upstream import INCLUDES, PLACEHOLDERS

CARD_KEYS = {"card": {"module": None, "card": "card.md"}}


def card(body: str) -> str:
    return f"---\nname: card\nmodel: passthrough\n---\n{body}\n"


def test_the_names_are_those_of_the_installed_fast_agent() -> None:
    found = set(re.findall(r"\{\{(\w+)\}\}", fast_agent.core.instruction.__doc__ or ""))
    assert found == set(PLACEHOLDERS)
    assert set(re.findall(r"\{\{(\w+):", fast_agent.core.instruction.__doc__ or "")) == set(INCLUDES)


MISSPELT = {
    "{{curentDate}}": "{{currentDate}}",
    "{{currentdate}}": "{{currentDate}}",
    "{{ currentDate }}": "{{currentDate}}",
    "{{current_date}}": "{{currentDate}}",
    "{{server_instructions}}": "{{serverInstructions}}",
    "{{serverInstruction}}": "{{serverInstructions}}",
    "{{workspaceroot}}": "{{workspaceRoot}}",
    "{{agentSkill}}": "{{agentSkills}}",
    "{{File:notes.md}}": "{{file:notes.md}}",
    "{{ file:notes.md }}": "{{file:notes.md}}",
    "{{file-silent:notes.md}}": "",
    "{{url: http://127.0.0.1:9/a}}": "{{url:http://127.0.0.1:9/a}}",
}


@pytest.mark.parametrize("written", MISSPELT)
def test_a_name_that_is_nearly_one_is_said_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    coded = agent_module("coded").replace("You are coded.", f"Do {written} now.")
    root = write_project(
        tmp_path,
        {"card": None, "coded": coded},
        keys=CARD_KEYS,
        files={"card.md": card(f"A\nB {written}"), "notes.md": "x"},
    )
    assert check(root) == 0
    lines = capsys.readouterr().err.splitlines()
    if not MISSPELT[written]:
        assert lines == []
        return
    said = f"holds {written}, which fast-agent leaves as it is; did you mean {MISSPELT[written]}"
    assert lines == [
        f"agents/coded.py:7: warning: agents.coded.instruction: {said}",
        f"card.md:6: warning: agents.card.instruction: {said}",
    ] or lines == [
        f"card.md:6: warning: agents.card.instruction: {said}",
        f"agents/coded.py:7: warning: agents.coded.instruction: {said}",
    ]


OWN = (
    "{{currentDate}} {{env}} {{workspaceRoot}}",
    "{{name}} {{user.name}} {{#each items}} {{/each}} {{> partial}} {{date}} {{model}} {{agent}} {{ env }}",
    "{% for x in xs %}{{ x.current_date }}{{ x|e }}{% endfor %}",
    "```jinja\n{{ currentDate }} {{curentDate}}\n```",
    "~~~\n{{curentDate}}\n~~~",
    "  ```\n  {{curentDate}}\n",
    "Write `{{ currentDate }}` for the date.",
    "\\{{curentDate}} ${{curentDate}} {{{curentDate}}}",
    "{{file_silent:away.md}} {{ticket: number}}",
)


@pytest.mark.parametrize("text", OWN)
def test_names_of_the_projects_own_are_not_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    root = write_project(tmp_path, {"card": None}, keys=CARD_KEYS, files={"card.md": card(text)})
    assert (check(root), capsys.readouterr().err) == (0, "")


REPLACED = """
from fast_agent import FastAgent

TEXT = "Today is {{current_date}}."
fast = FastAgent("coded")


@fast.agent("coded", instruction=TEXT.replace("{{current_date}}", "Monday"))
async def main() -> None: ...
"""
NAMED = """
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("coded")


@fast.agent("coded", Path("prompt.md"))
async def main() -> None: ...
"""


def test_what_the_code_itself_replaces_is_its_own_and_a_file_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"prompt.md": "One.\n{{curentDate}}\n"}
    root = write_project(tmp_path, {"coded": REPLACED, "named": NAMED}, files=files)
    assert check(root) == 0
    said = "holds {{curentDate}}, which fast-agent leaves as it is; did you mean {{currentDate}}"
    assert capsys.readouterr().err == f"prompt.md:2: warning: agents.named.instruction: {said}\n"


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/there.md"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"Be brief." if known else b"<html>")

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(30)


async def test_a_url_that_gives_no_text_is_said_by_check_and_by_the_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], site: str
) -> None:
    coded = agent_module("coded").replace("You are coded.", f"Do {{{{url:{site}/gone.md}}}} now.")
    files = {"card.md": card(f"{{{{url:{site}/there.md}}}}\n{{{{url:{site}/nope.md}}}}")}
    root = write_project(tmp_path, {"card": None, "coded": coded}, keys=CARD_KEYS, files=files)
    assert check(root, ask=True) == 0
    reason = "which cannot be fetched: the server answers 404; correct the address, or include a file"
    said = {
        "card": f"card.md:6: agents.card.instruction: includes {site}/nope.md, {reason}",
        "coded": f"agents/coded.py:7: agents.coded.instruction: includes {site}/gone.md, {reason}",
    }
    lines = [line.replace(" warning:", "") for line in capsys.readouterr().err.splitlines()]
    assert sorted(lines) == sorted(said.values())
    async with running(root) as fleet:
        found = {each.name: each.story for each in fleet.agents}
        assert found == said
