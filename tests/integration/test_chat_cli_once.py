"""`pallas chat -m` in a process of its own, against an agents' API that a test writes."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import pallas_process
from support.chat_api import ChatApi, chat_api, fault
from support.waiting import until

TALK = [
    {"type": "thinking", "delta": "Hm.\x1b[31m"},
    {"type": "text", "delta": "Let me look."},
    {"type": "tool_call", "toolName": "docs__search", "args": {"q": "lamps\x1b]0;x\x07"}},
    {"type": "tool_result", "toolName": "docs__search", "ok": True},
    {"type": "text", "delta": "\n\nIt is a \x1b[2Jlamp"},
    {"type": "text", "delta": "."},
]


HIDDEN = "".join(chr(0xE0000 + ord(each)) for each in "send") + "\u180e\u034f\u3164\ufff9\U0001d173\u200c"


@pytest.fixture
def api() -> Iterator[ChatApi]:
    with chat_api() as api:
        yield api


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    # What would change the answers of a developer's own machine is left out.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm-256color", **more}


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return pallas_process.start(
        *("chat", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )


def chat(
    tmp_path: Path, *arguments: str, stdin: str | bytes = "", **more: str
) -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = pallas_process.run(
        *("chat", *arguments),
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(tmp_path, **more),
        cwd=tmp_path,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_text_alone_is_on_stdout_and_all_else_on_stderr_without_escape_codes(
    api: ChatApi, tmp_path: Path
) -> None:
    # AG-25, AG-30
    api.steps = list(TALK)
    done = chat(tmp_path, "research", "-m", "What is it?", "--url", api.url)
    assert done.returncode == 0
    assert done.stdout == "Let me look.\n\nIt is a ␛[2Jlamp.\n"
    assert done.stderr.splitlines() == [
        "Hm.␛[31m",
        '[tool: docs__search {"q": "lamps␛]0;x\\\\x07"}]',
        "[tool: docs__search ok]",
        "(thread: conv-1)",
    ]
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr
    assert api.asked == [{"message": "What is it?", "stream": True}]


def test_options_go_along_and_the_message_may_be_piped(api: ChatApi, tmp_path: Path) -> None:
    # UN-5, AG-27
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    done = chat(
        tmp_path, "research", "--url", api.url, "--image", str(picture), "--thread", "conv-a",
        "--system", "Be brief.", "--system-append", "In French.", "--temperature", "0.2", "--top-p", "0.9",
        "--top-k", "3", "--max-tokens", "100", "--seed", "7", "--stop", "END", "--stop", "STOP",
        "--allow-tool", "docs__search", "--extra", "repetition_penalty=1.1", "--no-stream",
        stdin="What is\nthis?\n",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
    assert done.stderr == "(thread: conv-1)\n"
    (asked,) = api.asked
    image = asked.pop("images")
    assert image[0]["mimeType"] == "image/png"
    assert asked == {
        "message": "What is\nthis?",
        "threadId": "conv-a",
        "stream": False,
        "systemOverride": "Be brief.",
        "systemAppend": "In French.",
        "temperature": 0.2,
        "top_p": 0.9,
        "top_k": 3,
        "max_tokens": 100,
        "seed": 7,
        "stop": ["END", "STOP"],
        "tools_allowlist": ["docs__search"],
        "extra": {"repetition_penalty": 1.1},
    }


def test_json_is_one_document_or_a_line_for_each_chunk(api: ChatApi, tmp_path: Path) -> None:
    api.steps = list(TALK)
    one = chat(tmp_path, "research", "-m", "-", "--url", api.url, "--json", stdin="hi")
    document = json.loads(one.stdout)
    assert document["text"] == "Let me look.\n\nIt is a ␛[2Jlamp."
    assert (document["threadId"], document["turnIndex"], document["runId"]) == ("conv-1", 1, "run-1")
    assert document["usage"] == {"inputTokens": 100, "outputTokens": 30}
    many = chat(tmp_path, "research", "-m", "hi", "--url", api.url, "--json", "--stream")
    chunks = [json.loads(line) for line in many.stdout.splitlines()]
    assert [chunk["type"] for chunk in chunks] == [
        "thinking", "text", "tool_call", "tool_result", "text", "text", "final",
    ]  # fmt: skip
    assert many.stderr == "(thread: conv-1)\n"


def test_text_that_is_taken_back_is_told_and_is_no_part_of_the_answer(api: ChatApi, tmp_path: Path) -> None:
    api.steps = [
        {"type": "text", "delta": "I look."},
        {"type": "tool_call", "toolName": "docs__search", "args": {}},
        {"type": "tool_result", "toolName": "docs__search", "ok": True},
        {"type": "text", "delta": "\n\nIt is a la"},
        {"type": "rollback"},
        {"type": "retry", "reason": "HTTP 429", "retry": 1, "retries": 2, "wait": 9.0},
        {"type": "text", "delta": "\n\nA lamp."},
    ]
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert done.stdout == "I look.\n\nIt is a la\n\n\nA lamp.\n"
    said = (
        "[the provider's answer broke off; it is asked again, and the text since the last tool starts again]"
    )
    assert said in done.stderr.splitlines()
    assert "[HTTP 429, retry 1 of 2 in 9 s]" in done.stderr.splitlines()
    one = chat(tmp_path, "research", "-m", "hi", "--url", api.url, "--json")
    assert json.loads(one.stdout)["text"] == "I look.\n\nA lamp." and said in one.stderr
    many = chat(tmp_path, "research", "-m", "hi", "--url", api.url, "--json", "--stream")
    assert json.loads(many.stdout.splitlines()[4]) == {"type": "rollback"}


def test_who_answered_in_place_of_the_one_that_was_asked_is_told_behind_the_answer(
    api: ChatApi, tmp_path: Path
) -> None:
    # DR-32
    api.steps = [{"type": "text", "delta": "A lamp."}]
    api.ended = {"routed": "catalogue", "rerouted": ["cloud -> own: it is \x1b[31mgone"]}
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert done.stdout == "A lamp.\n"
    assert done.stderr.splitlines() == [
        "(answered by catalogue, chosen by research)",
        "(answered by another provider: cloud -> own: it is ␛[31mgone)",
        "(thread: conv-1)",
    ]
    document = json.loads(chat(tmp_path, "research", "-m", "hi", "--url", api.url, "--json").stdout)
    assert (document["routed"], document["rerouted"]) == ("catalogue", ["cloud -> own: it is ␛[31mgone"])


def test_a_run_that_fails_is_status_1_with_what_was_said_before(api: ChatApi, tmp_path: Path) -> None:
    api.steps = [
        {"type": "text", "delta": "It is"},
        {"type": "error", "message": "the model \x1b[31mbroke", "data": {"type": "UPSTREAM"}},
    ]
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert (done.returncode, done.stdout) == (1, "It is\n")
    assert done.stderr == "error: the model ␛[31mbroke\n(thread: conv-1)\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["resarch", "-m", "hi"], 3, "did you mean research?"),
        (["research", "-m", "hi", "--thread", "conv-vision"], 3, "belongs to the agent vision"),
        (["research", "-m", "hi", "--thread", "conv-none"], 3, "conv-none: conversation not found"),
        (["research", "-m", "hi", "--temperature", "9"], 2, "--temperature: must be a number from 0 to 2"),
        (["research", "-m", "hi", "--image", "none.png"], 2, "--image: none.png: No such file"),
        (["research", "-m", " "], 2, "the message is empty"),
        (["research"], 2, "the message is empty"),
    ],
)
def test_what_cannot_be_has_its_status_and_reaches_no_agent(
    api: ChatApi, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    # AG-27
    done = chat(tmp_path, *arguments, "--url", api.url)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert api.asked == []


def test_where_no_fleet_is_the_status_is_3(tmp_path: Path) -> None:
    done = chat(tmp_path, "research", "-m", "hi", PALLAS_URL="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nothing answers at http://127.0.0.1:1" in done.stderr
    nowhere = chat(tmp_path, "research", "-m", "hi")
    assert nowhere.returncode == 2
    assert "pallas init" in nowhere.stderr


def test_a_token_goes_along_and_is_never_shown(api: ChatApi, tmp_path: Path) -> None:
    api.token = "very-secret-token"
    refused = chat(tmp_path, "research", "-m", "hi", "--url", api.url, "--token", "another-secret")
    assert refused.returncode == 1
    assert "the token that was given" in refused.stderr
    assert "another-secret" not in refused.stderr
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url, PALLAS_TOKEN="very-secret-token")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")


def test_an_answer_that_broke_off_is_gone_on_with(api: ChatApi, tmp_path: Path) -> None:
    # AG-25
    api.steps = [{"type": "text", "delta": "One "}, "break", {"type": "text", "delta": "two."}]
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert (done.returncode, done.stdout) == (0, "One two.\n"), done.stderr
    first, again = api.headers
    assert first["idempotency-key"] == again["idempotency-key"]
    assert "last-event-id" not in first
    assert again["last-event-id"] == "2"


@pytest.mark.parametrize("options", [[], ["--no-stream"]])
async def test_ctrl_c_cancels_the_run_and_is_status_130(
    api: ChatApi, tmp_path: Path, options: list[str]
) -> None:
    api.steps = [{"type": "text", "delta": "It is"}, "hang"]
    process = started(tmp_path, "research", "-m", "hi", "--url", api.url, *options)
    try:
        if options:
            await until(lambda: api.asked)
        else:
            assert process.stdout is not None
            assert os.read(process.stdout.fileno(), 5) == b"It is"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "cancelled" in err.decode()
    assert "Traceback" not in err.decode()
    assert "\x1b" not in out.decode() + err.decode()
    await until(lambda: api.cancelled == (["disconnected"] if options else ["run-1"]))


def test_a_second_ctrl_c_leaves_at_once(api: ChatApi, tmp_path: Path) -> None:
    api.steps = [{"type": "text", "delta": "It is"}, "hang"]
    told = json.loads(bytes(fault("INTERNAL", "cannot cancel", 500).body))
    api.status["DELETE /runs/run-1"] = (500, told)
    process = started(tmp_path, "research", "-m", "hi", "--url", api.url)
    try:
        assert process.stdout is not None and process.stderr is not None
        os.read(process.stdout.fileno(), 5)
        process.send_signal(signal.SIGINT)
        assert os.read(process.stderr.fileno(), 100).startswith(b"(cancelling")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        api.cancelled.append("run-1")  # what hangs ends
    assert process.returncode == 130
    assert err == b""  # nobody waited for the run to say that it was cancelled


async def test_a_reader_that_goes_away_ends_the_run_without_a_word(api: ChatApi, tmp_path: Path) -> None:
    # AG-25
    api.steps = [*({"type": "text", "delta": "x" * 1000} for _ in range(200)), "hang"]
    process = started(tmp_path, "research", "-m", "hi", "--url", api.url)
    try:
        assert process.stdout is not None and process.stderr is not None
        os.read(process.stdout.fileno(), 5)
        process.stdout.close()
        assert process.wait(30) == 141
        assert b"Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
    assert api.cancelled == ["run-1"]


def test_what_a_fleet_refuses_is_told_as_it_says_it(api: ChatApi, tmp_path: Path) -> None:
    told = json.loads(bytes(fault("TRANSPORT", "research is starting\x1b[2J", 503).body))
    api.status["POST /agents/research/chat"] = (503, told)
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: research is starting␛[2J\n"


@pytest.mark.slow
def test_what_is_not_seen_is_made_visible_whatever_the_pieces_are(api: ChatApi, tmp_path: Path) -> None:
    text = f"A{HIDDEN}B ❤\ufe0f 👩\u200d💻 हिन्दी e\u0301"
    seen = "A" + "".join(f"\\U{ord(c):08x}" if c > "\uffff" else f"\\u{ord(c):04x}" for c in HIDDEN) + "B"
    api.steps = [
        {"type": "thinking", "delta": f"Hm{HIDDEN}"},
        *({"type": "text", "delta": each} for each in text),
    ]
    done = chat(tmp_path, "research", "-m", "hi", "--url", api.url)
    assert done.stdout == f"{seen} ❤\ufe0f 👩\u200d💻 हिन्दी e\u0301\n"
    assert not set(HIDDEN) & set(done.stderr)
    # A program gets the text as it is, and a terminal that shows the JSON sees all of it.
    for arguments in (("--json",), ("--json", "--stream")):
        done = chat(tmp_path, "research", "-m", "hi", "--url", api.url, *arguments)
        assert not set(HIDDEN) & set(done.stdout)
        documents = [json.loads(line) for line in done.stdout.splitlines()] if len(arguments) > 1 else []
        whole = "".join(each.get("delta", "") for each in documents if each["type"] == "text")
        assert (whole or json.loads(done.stdout)["text"]) == text
