"""`pallas chat` on real fleets: one that runs, and one that is started for the call."""

import json
import os
import pty
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import pallas_process
from support.chatting import Desk, desk, model
from support.live import agent_module, write_project
from support.ports import free_ports, is_free
from support.waiting import until

from pallas.client.own_fleet import needed
from pallas.config import load_project


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("chat")
    with model(folder) as running:
        yield desk(folder, running)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("chat")
    with model(folder) as running:
        project = desk(folder, running)
        with project.serving():
            yield project


def thread_in(err: str) -> str:
    return err.rpartition("(thread: ")[2].partition(")")[0]


def test_one_message_its_tools_and_its_thread(fleet: Desk) -> None:
    # AG-25, AG-17
    done = fleet.chat("research", "-m", "use your tool")
    assert (done.returncode, done.stdout) == (0, 'I look.\n\nIt said {"result":"echo:x"}\n'), done.stderr
    lines = done.stderr.splitlines()
    assert lines[:2] == ['[tool: echo__echo {"text": "x"}]', "[tool: echo__echo ok]"]
    assert lines[2].startswith("(thread: conv-")
    assert "\x1b" not in done.stdout + done.stderr
    rows = fleet.ask("GET", f"/threads/{thread_in(done.stderr)}/messages?order=asc")["items"]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.slow
def test_a_thread_is_gone_on_with_all_that_was_said(fleet: Desk) -> None:
    # AG-27
    first = fleet.chat("research", "-m", "apples")
    assert first.stdout == "turn 1, first apples\n"
    again = fleet.chat("research", "-m", "pears", "--thread", thread_in(first.stderr), "--no-stream")
    assert again.stdout == "turn 2, first apples\n"
    assert thread_in(again.stderr) == thread_in(first.stderr)
    asked = [message["content"] for message in fleet.asked()["messages"] if message["role"] != "system"]
    assert [_text(content) for content in asked] == ["apples", "turn 1, first apples", "pears"]


@pytest.mark.slow
def test_a_thread_of_another_agent_is_an_error_that_names_it(fleet: Desk) -> None:
    # AG-27
    theirs = thread_in(fleet.chat("vision", "-m", "hello").stderr)
    calls = fleet.model.record.calls
    done = fleet.chat("research", "-m", "hello", "--thread", theirs)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{theirs} belongs to the agent vision" in done.stderr
    unknown = fleet.chat("research", "-m", "hello", "--thread", "conv-none")
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert fleet.model.record.calls == calls


@pytest.mark.slow
def test_with_and_without_a_stream_the_answer_is_the_same(fleet: Desk) -> None:
    # AG-16, AG-25
    streamed = json.loads(fleet.chat("research", "-m", "plums", "--json").stdout)
    whole = json.loads(fleet.chat("research", "-m", "plums", "--json", "--no-stream").stdout)
    assert streamed["text"] == whole["text"] == "turn 1, first plums"
    assert streamed["turnIndex"] == whole["turnIndex"]
    assert streamed["usage"] == whole["usage"]


def test_options_reach_the_provider_as_those_of_the_api_do(fleet: Desk) -> None:
    # UN-5
    asked = []
    fleet.chat(
        "research", "-m", "hi", "--temperature", "0.2", "--top-p", "0.9", "--max-tokens", "50", "--seed", "7",
        "--stop", "END", "--system", "Be brief.",
    )  # fmt: skip
    asked.append(fleet.asked())
    fleet.chat(
        "research", "-m", "hi", "--set", "Temperature=0.2", "--set", "topP=0.9", "--set", "max-tokens=50",
        "--set", "seed=7", "--set", "stop=END", "--set", "system_override=Be brief.",
    )  # fmt: skip
    asked.append(fleet.asked())
    for keys in (
        ("temperature", "top_p", "max_tokens", "seed", "stop", "system_override"),
        ("temperature", "topP", "maxTokens", "seed", "stop", "systemOverride"),
    ):
        values = dict(zip(keys, (0.2, 0.9, 50, 7, ["END"], "Be brief."), strict=True))
        fleet.ask("POST", "/agents/research/chat", {"message": "hi", **values})
        asked.append(fleet.asked())
    assert asked[0]["temperature"] == 0.2
    assert asked[0]["top_p"] == 0.9
    assert all(each == asked[0] for each in asked)


@pytest.mark.slow
def test_what_a_model_says_drives_no_terminal(fleet: Desk) -> None:
    # AG-25
    for options in ([], ["--no-stream"], ["--json"]):
        done = fleet.chat("research", "-m", "hostile", *options)
        assert done.returncode == 0
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)
        assert "red" in done.stdout


async def test_ctrl_c_cancels_the_run_in_the_fleet(fleet: Desk) -> None:
    process = fleet.start("research", "-m", "take your time")
    try:
        run = await until(lambda: fleet.ask("GET", "/runs?agent=research&status=running")["items"])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "cancelled" in err.decode()
    await until(lambda: fleet.ask("GET", f"/runs/{run[0]['id']}")["status"] == "cancelled")


def test_agents_and_threads_are_completed_by_the_shell(fleet: Desk) -> None:
    thread = thread_in(fleet.chat("research", "-m", "hi").stderr)

    def completed(words: str) -> str:
        return fleet.chat(
            COMP_WORDS=f"pallas chat -p {fleet.root} {words}",
            COMP_CWORD=str(4 + words.count(" ")),
            _PALLAS_COMPLETE="complete_bash",
        ).stdout

    assert completed("res").split() == ["research"]
    assert thread in completed("research --thread conv")


@pytest.mark.slow
def test_where_no_fleet_runs_one_is_started_for_the_call_and_leaves_its_thread(idle: Desk) -> None:
    # AG-25, AG-27
    first = idle.chat("research", "-m", "use your tool")
    assert (first.returncode, first.stdout) == (0, 'I look.\n\nIt said {"result":"echo:x"}\n'), first.stderr
    assert first.stderr.startswith("no fleet of test runs: one is started for this call\n")
    assert "NOISE" not in first.stderr
    again = idle.chat("research", "-m", "and now?", "--thread", thread_in(first.stderr))
    assert (again.returncode, again.stdout) == (0, "turn 2, first use your tool\n"), again.stderr
    assert is_free(int(idle.url.rpartition(":")[2]))
    left = [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(idle.root)]
    assert left == []


SIBLINGS = """
models: [scripted]
rules:
  - when: {system: you are library}
    say: Monday to Friday
  - when: {last: tool}
    say: "It said {{ result }}"
  - when: {last: user, text: peer}
    call: [{tool: library, arguments: {message: "When?"}}]
  - when: {last: user, text: server}
    call: [{tool: library__send_message, arguments: {message: "When?"}}]
  - say: plain
"""


@pytest.mark.slow
def test_agents_that_the_asked_one_reaches_are_started_with_it(tmp_path: Path) -> None:
    # One is a peer, the other a server; neither is in depends_on.
    shelf = free_ports(1)[0]
    server = {"url": f"http://127.0.0.1:{shelf}/mcp", "auth": {"oauth": False}}
    serving = agent_module("serving", ("library",))
    broken = "raise RuntimeError('out of paper')"
    with model(tmp_path, SIBLINGS) as running:
        root = write_project(
            tmp_path / "desk",
            {"peered": None, "serving": serving, "library": None, "lame": broken},
            keys={"peered": {"peers": ["library", "lame"]}, "library": {"port": shelf}},
            top={"bind": "127.0.0.1"},
            config={
                "default_model": "generic.scripted",
                "generic": {"base_url": running.url, "api_key": "offline"},
                "mcp": {"servers": {"library": server}},
            },
        )
        project = Desk(root, tmp_path / "state", running)
        needs = needed(load_project(root, {}), "serving").agents["serving"].depends_on
        assert needs == ("library",)  # it connects when that answers
        for agent, text, fails in (("peered", "peer", True), ("serving", "server", False)):
            done = project.chat(agent, "-m", text)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("It said")
            assert "Monday to Friday" in done.stdout, done.stderr
            assert (f"{agent} answers without lame: " in done.stderr) == fails, done.stderr


def test_no_fleet_is_started_for_an_agent_that_there_is_not(idle: Desk) -> None:
    done = idle.chat("resarch", "-m", "hi")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pallas chat: there is no agent resarch in test; did you mean research\n"


@pytest.mark.slow
async def test_ctrl_c_ends_a_fleet_of_ones_own_with_the_run(idle: Desk) -> None:
    calls = idle.model.record.calls
    process = idle.start("research", "-m", "take your time")
    try:
        await until(lambda: idle.model.record.calls > calls, timeout=90)
        below = pallas_process.below(process.pid)
        assert below
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    await until(lambda: not any(each.is_running() for each in below))


@pytest.mark.slow
def test_files_with_mistakes_are_told_and_a_fleet_that_runs_answers_all_the_same(
    tmp_path: Path, fleet: Desk
) -> None:
    wrong = Desk(tmp_path / "desk", tmp_path, fleet.model)
    wrong.root.mkdir()
    text = (fleet.root / "agents.yaml").read_text("utf-8")
    (wrong.root / "agents.yaml").write_text(f"{text}\nnonsense: 1\n", "utf-8")
    done = wrong.chat("research", "-m", "figs")
    assert (done.returncode, done.stdout) == (0, "turn 1, first figs\n"), done.stderr
    assert "the project's files have mistakes now" in done.stderr
    (wrong.root / "agents.yaml").write_text("registry_port: 1\nnonsense: 1\n", "utf-8")
    done = wrong.chat("research", "-m", "figs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nonsense" in done.stderr


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


def test_one_signal_ends_it_at_a_prompt_on_a_paused_terminal(fleet: Desk) -> None:
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        chat = fleet.start("research", stdin=slave, stdout=slave, stderr=slave)
        try:
            shown = b""
            while b"research>" not in shown:
                shown += screen.read(4096)
            termios.tcflow(slave, termios.TCOOFF)  # as ctrl+s does
            chat.terminate()
            assert chat.wait(60) == 128 + signal.SIGTERM
        finally:
            os.close(slave)
            chat.kill()
            chat.wait()
