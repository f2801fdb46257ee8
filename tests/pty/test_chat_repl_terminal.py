"""The prompt of `pallas chat` as a person meets it: a real fleet, in a real terminal (tmux)."""

import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.chatting import Desk, desk, model
from support.terminal import Terminal, needs_tmux, terminal
from support.waiting import until

pytestmark = [needs_tmux, pytest.mark.pty]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("repl")
    with model(folder) as running:
        project = desk(folder, running)
        with project.serving():
            yield project


@contextmanager
def prompt(fleet: Desk, *arguments: str) -> Iterator[Terminal]:
    command = shlex.join(fleet.command(*arguments))
    with terminal(
        f"clear; {command}; echo left with $?", cwd=fleet.state, environment=fleet.environment()
    ) as shown:
        shown.until("/help lists commands", ">")
        yield shown


def enter(shown: Terminal, text: str, *expected: str) -> str:
    shown.type(text)
    shown.keys("Enter")
    return shown.until(*expected)


@pytest.mark.slow
def test_a_conversation_with_tools_several_lines_and_a_new_thread(fleet: Desk) -> None:
    # AG-25, AG-26
    with prompt(fleet, "research") as shown:
        enter(
            shown,
            "use your tool",
            "I look.",
            "[tool: echo__echo",
            '{"result":"echo:x"}',
            "1 tool call",
            "(thread: conv-",
        )
        shown.type("pears\\")
        shown.keys("Enter")
        shown.type("plums")
        shown.keys("Enter")
        shown.until("turn 2, first use your tool")
        assert [each["content"] for each in _user_rows(fleet)] == ["use your tool", "pears\nplums"]
        enter(shown, "/clear", "A new conversation begins")
        shown.type("apples")
        shown.keys("M-Enter")
        shown.type("figs")
        shown.keys("Enter")
        shown.until("turn 1, first apples")
        threads = fleet.ask("GET", "/agents/research/threads")["items"]
        assert len(threads) == 2
        enter(shown, "/threads", f"1  {threads[0]['id']}")
        enter(shown, "/resume 2", f"Continuing {threads[1]['id']}")
        enter(shown, "again", "turn 3, first use your tool")
        enter(shown, "/export md talk.md", "Written to")
        assert "pears\nplums" in (fleet.state / "talk.md").read_text("utf-8")
        screen = enter(shown, "/quit", "left with 0")
        assert "Traceback" not in screen
    history = fleet.state / "pallas" / "chat" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "use your tool" in history.read_text("utf-8")


@pytest.mark.slow
def test_what_is_typed_while_there_is_no_prompt_is_entered_line_by_line(fleet: Desk) -> None:
    with prompt(fleet, "research") as shown:
        for line in ("use your tool", "/set top_k 3", "/set seed 4"):
            shown.type(line)
            shown.keys("Enter")
        shown.until("1 tool call", "top_k is 3 now", "seed is 4 now")
        enter(shown, "/quit", "left with 0")


@pytest.mark.slow
def test_parameters_set_at_the_prompt_reach_the_provider_and_save_keeps_them(fleet: Desk) -> None:
    # AG-26, AG-13, UN-5
    fleet.ask(
        "POST", "/llms", {"name": "local", "type": "openai", "model": "scripted", "url": fleet.model.url}
    )
    fleet.ask("POST", "/agents", {"name": "helper", "llm": "local", "systemPrompt": "You help."})
    with prompt(fleet, "helper") as shown:
        for line, told in (
            ("/set temperature 0.2", "temperature is 0.2 now"),
            ("/set topP=0.9", "top_p is 0.9 now"),
            ("/system Be brief.", "this is the instruction"),
            ("/append In French.", "follows the instruction"),
        ):
            enter(shown, line, told)
        enter(shown, "hello", "turn 1, first hello", "(thread: ")
        asked = fleet.asked()
        fleet.ask(
            "POST",
            "/agents/helper/chat",
            {
                "message": "hello",
                "temperature": 0.2,
                "top_p": 0.9,
                "systemOverride": "Be brief.",
                "system_append": "In French.",
            },
        )
        assert fleet.asked() == asked
        assert (asked["temperature"], asked["top_p"]) == (0.2, 0.9)
        assert "Be brief." in str(asked["messages"][0])
        enter(shown, "/save", "Default of helper from now on: temperature 0.2, top_p 0.9")
        kept = fleet.ask("GET", "/agents/helper")
        assert kept["defaultParams"] == {"temperature": 0.2, "top_p": 0.9}
        assert kept["systemPrompt"] == "You help."
        enter(shown, "/clear", "A new conversation begins", "The agent's own instruction applies again")
        enter(shown, "afresh", "turn 1, first afresh")
        asked = fleet.asked()
        assert "You help." in str(asked["messages"][0])
        assert "Be brief." not in str(asked) and "In French." not in str(asked)
        assert (asked["temperature"], asked["top_p"]) == (0.2, 0.9)
        enter(shown, "/clear", "A new conversation begins")
        enter(shown, "/system Be brief.", "this is the instruction")
        enter(shown, "/system", "Removed: Be brief.", "You help.")
        shown.keys("C-d")
        shown.until("left with 0")


@pytest.mark.slow
async def test_ctrl_c_cancels_an_answer_and_twice_leaves(fleet: Desk) -> None:
    # AG-26
    with prompt(fleet, "research") as shown:
        shown.type("take your time")
        shown.keys("Enter")
        shown.until("waiting")  # which is said before the fleet has heard of it
        running = await until(lambda: fleet.ask("GET", "/runs?agent=research&status=running")["items"])
        run = running[0]["id"]
        shown.keys("C-c")
        shown.until("cancelled", "research> ")
        await until(lambda: fleet.ask("GET", f"/runs/{run}")["status"] == "cancelled")
        # What was cancelled is not part of it.
        enter(shown, "go on", "turn 1, first go on", "tokens/s · cost unknown\nresearch>")
        shown.type("half a thought")
        shown.keys("C-c")
        shown.until("(thrown away)")
        shown.keys("C-c")
        shown.until("left with 0")


@pytest.mark.slow
def test_commands_are_completed_and_tools_are_listed(fleet: Desk) -> None:
    # AG-26
    with prompt(fleet, "research") as shown:
        shown.type("/too")
        shown.keys("Tab")
        shown.until("research> /tools")
        shown.keys("Enter")
        shown.until("echo: Say it again")
        shown.type("/set temp")
        shown.keys("Tab")
        shown.until("/set temperature")
        shown.keys("C-c")
        enter(shown, "/sett", "Did you mean /set?")
        enter(shown, "/image none.png", "No such file")
        shown.keys("C-d")
        shown.until("left with 0")


@pytest.mark.slow
def test_with_stdout_in_a_pipe_lines_are_read_without_an_editor(fleet: Desk) -> None:
    # AG-25
    command = shlex.join(fleet.command("research"))
    talk = fleet.state / "piped.txt"
    with terminal(
        f"clear; {command} > {talk}; echo left with $?", cwd=fleet.state, environment=fleet.environment()
    ) as shown:
        shown.until("research>")
        enter(shown, "apples", "tokens/s", "(thread: conv-")
        shown.type("pears\\")
        shown.keys("Enter")
        shown.until("\n...")
        shown.type("plums")
        shown.keys("Enter")
        shown.until("1 step · ", "research>")
        enter(shown, "/set temperature 0.3", "temperature is 0.3 now")
        shown.keys("C-d")
        shown.until("left with 0")
    assert talk.read_text("utf-8") == "turn 1, first apples\nturn 2, first apples\n"


@pytest.mark.slow
def test_what_a_model_says_drives_no_terminal(fleet: Desk) -> None:
    # AG-25
    with prompt(fleet, "research") as shown:
        screen = enter(shown, "hostile", "red", "(thread: ")
        assert "hostile" in screen  # the screen was not cleared
        assert "␛]0;owned" in screen
        assert "owned" not in shown.tmux("display-message", "-p", "#{pane_title}")


def _user_rows(fleet: Desk) -> list[dict[str, str]]:
    thread = fleet.ask("GET", "/agents/research/threads")["items"][0]["id"]
    rows = fleet.ask("GET", f"/threads/{thread}/messages?order=asc")["items"]
    return [row for row in rows if row["role"] == "user"]
