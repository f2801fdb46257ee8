import json
from pathlib import Path

import pytest

from pallas.model import Fault
from pallas_tui.chat.chat_export import (
    ConversationFacts,
    as_json,
    as_markdown,
    exported,
    file_name,
    form_of,
    write_new,
)
from pallas_tui.chat.conversation import ChatConversation
from pallas_tui.chat_client import AgentReply
from pallas_tui.pictures.images import ChatPicture

NOON = 1_750_000_000.0
ABOUT = ConversationFacts(
    agent="research",
    url="http://127.0.0.1:24202/mcp",
    model="generic.scripted",
    era="auto",
    protocol="2026-07-28",
    principal="3fc2ab",
)


def conversation() -> ChatConversation:
    now = iter(range(100))
    talk = ChatConversation("research", stopwatch=lambda: float(next(now)))
    picture = ChatPicture(None, "plan.png", "image/png", 1_000, "AAAA")
    run = talk.begin("Which customers?", (picture,), NOON)
    for message in ("research step 1 (tool)", "docs/search: started", "docs/search: completed"):
        talk.hear(run, message)
    reply = AgentReply(
        text="Acme\n\n**Globex** \x1b[31m",
        seconds=3.14,
        steps=2,
        tools=1,
        tokens_in=10,
        tokens_out=5,
        run_id="r1",
    )
    talk.answer(run, reply, NOON + 3)
    talk.note("The bearer is somebody's.", NOON + 4)
    talk.cancel(talk.begin("And then?", (), NOON + 5), NOON + 6)
    return talk


def test_markdown_is_there_to_be_read() -> None:
    text = as_markdown(conversation(), ABOUT)
    for part in (
        "# Conversation with research\n",
        "- asked as: bearer 3fc2ab\n",
        "- protocol: 2026-07-28\n",
        "Which customers?\n\n- image: plan.png, 1 KB\n",
        "research · 3.1 s · 10 tokens in, 5 out\n\n- docs/search (1.0 s)\n\nAcme\n\n**Globex** ␛[31m\n",
        "cancelled",
    ):
        assert part in text
    assert "somebody's" not in text
    assert "\x1b" not in text


def test_json_is_there_to_be_worked_with() -> None:
    talk = conversation()
    talk.name = "invoice bug"
    document = json.loads(as_json(talk, ABOUT))
    assert document["format"] == "pallas-conversation/1"
    assert document["name"] == "invoice bug"
    assert [message["role"] for message in document["messages"]] == ["user", "assistant", "user", "assistant"]
    question, answer = document["messages"][:2]
    assert question["at"] == "2025-06-15T15:06:40+00:00"
    assert question["images"] == [{"name": "plan.png", "mime_type": "image/png", "bytes": 1000}]
    assert answer["calls"] == [{"kind": "call", "name": "docs/search", "state": "ok", "seconds": 1.0}]
    assert (answer["seconds"], answer["tokens_in"], answer["run_id"]) == (3.14, 10, "r1")
    assert talk.handle not in json.dumps(document)
    assert exported(talk, ABOUT, "json") == as_json(talk, ABOUT)


def test_a_name_is_made_of_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = conversation()
    assert file_name(talk, NOON, "md").startswith("research-2025-06-15-")
    talk.name = "../../etc/pass wd"
    assert "/" not in file_name(talk, NOON, "json")
    assert form_of(Path("x.JSON")) == "json"
    assert form_of(Path("x.txt")) == "md"


def test_a_file_is_written_whole_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    write_new(path, "first\n")
    with pytest.raises(Fault, match="a file already, and nothing is overwritten"):
        write_new(path, "second\n")
    assert path.read_text() == "first\n"
    assert [each.name for each in tmp_path.iterdir()] == ["talk.md"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no/such/folder.md", "There is no folder"),
        (".", "cannot be written|already"),
        ("x" * 300, "cannot be written"),
    ],
)
def test_a_path_that_cannot_be_says_why(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(Fault, match=words):
        write_new(tmp_path / name, "text")
    assert list(tmp_path.iterdir()) == []


def test_without_hard_links_it_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    write_new(tmp_path / "a.md", "text")
    assert (tmp_path / "a.md").read_text() == "text"
    with pytest.raises(Fault, match="already"):
        write_new(tmp_path / "a.md", "other")
    assert [each.name for each in tmp_path.iterdir()] == ["a.md"]
