"""`pallas chat` before anything is asked: options, messages of several lines, pictures, what is kept."""

import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pallas.cli.chat_client.chat_options import images_of, params_of, slips, system_of
from pallas.cli.chat_client.chat_terminal import ChatTerminal, folded
from pallas.cli.chat_client.chat_turn import ChatReply, figures
from pallas.cli.chat_client.exit_status import USAGE, ChatExit
from pallas.cli.chat_client.line_input import MAX_BYTES, goes_on, open_history, typed
from pallas.cli.chat_completion import declared
from pallas.client import TOKEN_VARIABLE, URL_VARIABLE, place_of, token_of
from pallas.model import Fault

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_options_become_parameters_and_extra_reads_numbers_and_json() -> None:
    # UN-5
    params = params_of(
        {"temperature": 0.2, "top_p": None, "stop": ["END"], "tools_allowlist": ["docs__search"]},
        ["repetition_penalty=1.1", 'metadata={"user_id": "me"}', "name=plain text", "empty="],
        ["maxTokens=100", "foo=true"],
    )
    assert params.to_json() == {
        "temperature": 0.2,
        "stop": ["END"],
        "tools_allowlist": ["docs__search"],
        "max_tokens": 100,
        "extra": {
            "repetition_penalty": 1.1,
            "metadata": {"user_id": "me"},
            "name": "plain text",
            "empty": "",
            "foo": True,
        },
    }


@pytest.mark.parametrize(
    ("given", "extra", "more", "words"),
    [
        ({"temperature": 3.0}, (), (), "--temperature: must be a number from 0 to 2"),
        ({"stop": ["1", "2", "3", "4", "5"]}, (), (), "--stop: 5 were given; at most 4"),
        ({"top_k": -1}, (), (), "--top-k: must be a whole number"),
        ({}, ("novalue",), (), "--extra novalue: write NAME=VALUE"),
        ({}, ("=1",), (), "write NAME=VALUE"),
        ({}, (), ("seed=abc",), "--set seed: must be a whole number"),
        ({}, (), ("messages=[]",), "one call only"),
    ],
)
def test_an_option_that_cannot_be_is_named(given: dict[str, Any], extra: Any, more: Any, words: str) -> None:
    with pytest.raises(ChatExit) as left:
        params_of(given, extra, more)
    assert words in left.value.message
    assert left.value.status == USAGE


def test_the_instruction_comes_from_the_line_or_a_file_and_never_both(tmp_path: Path) -> None:
    file = tmp_path / "system.md"
    file.write_text("Be brief.\n", "utf-8")
    assert system_of(None, file) == "Be brief."
    assert system_of("Be long.", None) == "Be long."
    for text, path, words in (
        ("x", file, "not both"),
        (None, tmp_path / "none.md", "No such file"),
        (None, tmp_path, "Is a directory"),
    ):
        with pytest.raises(ChatExit) as left:
            system_of(text, path)
        assert words in left.value.message


def test_pictures_are_taken_by_their_content_and_refused_by_name(tmp_path: Path) -> None:
    good, text, large = (tmp_path / name for name in ("cat.txt", "cat.png", "large.png"))
    good.write_bytes(PNG)
    text.write_text("no picture")
    large.write_bytes(PNG + bytes(3_000_000))
    assert [image.mime_type for image in images_of([good])] == ["image/png"]
    for path, words in (
        (text, "cat.png is not a PNG"),
        (large, "more than 3000000 bytes"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(ChatExit) as left:
            images_of([path])
        assert words in left.value.message
    with pytest.raises(ChatExit, match="21 were given; at most 20"):
        images_of([good] * 21)


@pytest.mark.parametrize(
    ("line", "more", "message"),
    [
        ("hello", False, "hello"),
        ("hello\\", True, ""),
        ("hello\\\nthere", False, "hello\nthere"),
        (r"C:\\", False, r"C:\\"),
        ('"""', True, ""),
        ('"""a\nb', True, ""),
        ('"""a\n\nb"""', False, "a\n\nb"),
        ('"""\na\n"""', False, "a"),
        ('"""a""" b', False, "a b"),
    ],
)
def test_a_message_of_several_lines(line: str, more: bool, message: str) -> None:
    assert goes_on(line) is more
    if not more:
        assert typed(line) == message


def test_the_history_is_for_its_owner_alone_and_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "chat" / "history"
    history = open_history(path)
    for number in range(3):
        history.append_string(f"line {number}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(open_history(path).load_history_strings()) == ["line 2", "line 1", "line 0"]
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"".join(b"\n# 2026\n+" + b"x" * 90 + b"%d\n" % number for number in range(12_000)))
    shortened = open_history(path)
    assert path.stat().st_size < MAX_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert next(iter(shortened.load_history_strings())).endswith("11999")


def test_a_history_that_cannot_be_kept_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "chat").write_text("in the way")
    history = open_history(tmp_path / "chat" / "history")
    history.append_string("hello")
    assert list(history.get_strings()) == ["hello"]


def test_the_fleet_is_where_the_option_the_environment_or_the_project_say() -> None:
    environ = {URL_VARIABLE: "https://fleet.example/pallas/", TOKEN_VARIABLE: " secret "}
    assert place_of("host:1234", environ=environ).origin == "http://host:1234"
    assert place_of("", environ=environ).origin == "https://fleet.example/pallas"
    assert (
        place_of("http://[::1]:24200/.well-known/mcp/server.json", environ={}).origin == "http://[::1]:24200"
    )
    assert place_of("http://[::1]:1", environ={}).is_loopback
    assert place_of("http://10.0.0.1", environ={}).in_the_clear
    assert token_of("", environ) == "secret"
    for wrong in ("ftp://host", "http://", "http://u:p@host", "host:port", "http://host?x=1"):
        with pytest.raises(Fault, match="write http://host:port"):
            place_of(wrong, environ={})
    with pytest.raises(Fault) as fault:
        token_of("my secret", {})
    assert "my secret" not in fault.value.message


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, ChatTerminal]]:
    (out_read, out), (err_read, err) = os.pipe(), os.pipe()
    terminal = ChatTerminal({"TERM": "xterm"}, out=out, err=err)
    for descriptor in (out, err):
        os.close(descriptor)
    yield out_read, err_read, terminal
    for descriptor in (out_read, err_read, terminal.out, terminal.err):
        os.close(descriptor)


def test_what_is_piped_has_no_escape_code_and_no_status(pipes: tuple[int, int, ChatTerminal]) -> None:
    # AG-25
    out, err, terminal = pipes
    terminal.aside("thinking")
    terminal.text("Hello")
    terminal.show("1.0 s")
    terminal.note("[tool: docs__search]")
    terminal.text(" there")
    terminal.end_text()
    terminal.settle()
    assert os.read(out, 1000) == b"Hello there\n"
    assert os.read(err, 1000) == b"thinking\n[tool: docs__search]\n"


@pytest.mark.parametrize("no_color", [False, True])
def test_on_a_terminal_what_is_beside_the_answer_is_dim_and_the_answer_is_plain(no_color: bool) -> None:
    # AG-25, AG-30
    screen, terminal_end = os.openpty()
    environ = {"TERM": "xterm"} | ({"NO_COLOR": "1"} if no_color else {})
    terminal = ChatTerminal(environ, out=terminal_end, err=terminal_end)
    try:
        terminal.aside("hm")
        terminal.text("Hello")
        terminal.note("[tool: docs__search]")
        terminal.text("\n\nthere")
        terminal.end_text()
        shown = ""
        # A terminal hands on what was written when it gets to it.
        while not shown.endswith("there\r\n") and select.select([screen], [], [], 60)[0]:
            shown += os.read(screen, 1000).decode()
    finally:
        for descriptor in (screen, terminal_end, terminal.out, terminal.err):
            os.close(descriptor)
    if no_color:
        assert shown == "hm\r\nHello\r\n[tool: docs__search]\r\nthere\r\n"
    else:
        assert shown == ("\x1b[2;3mhm\x1b[0m\r\nHello\r\n\x1b[2m[tool: docs__search]\x1b[0m\r\nthere\r\n")


def test_the_column_counts_wide_letters_tabs_and_wraps(
    pipes: tuple[int, int, ChatTerminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, terminal = pipes
    monkeypatch.setattr(ChatTerminal, "width", 10)
    for text, column in (("abc", 3), ("漢字", 4), ("a\tb", 9), ("0123456789", 10), ("0123456789ab", 2)):
        terminal._screen = text
        assert terminal.column == column, text


def test_figures_are_those_of_the_fleet_where_it_tells_them() -> None:
    told = {"seconds": 2.0, "steps": 1, "tools": 3, "usage": {"inputTokens": 10, "outputTokens": 40}}
    assert (
        figures(ChatReply(seconds=9.0), told)
        == "2.0 s · 1 step · 3 tool calls · 10 tokens in, 40 out · 20 tokens/s"
    )
    assert figures(ChatReply(seconds=9.0, tools=1), {}) == "9.0 s · 1 tool call"
    assert figures(ChatReply(seconds=9.0), {"usage": None, "seconds": "x"}) == "9.0 s"


def test_a_name_that_is_nearly_a_parameter_s_is_told() -> None:
    (line,) = slips(["temprature=1", "temperature=1", "topP=0.5", "repetition_penalty=1.1"])
    assert (
        line == "--set temprature: is sent to the provider as it is, under extra; did you mean temperature?"
    )


def test_a_table_is_broken_between_words_below_its_column() -> None:
    told = "/set [name]   Shows or sets how this conversation is held.\nshort\n  a  conv-1  one two"
    assert folded(told, 40).split("\n") == [
        "/set [name]   Shows or sets how this",
        "              conversation is held.",
        "short",
        "  a  conv-1  one two",
    ]
    assert folded("x" * 50, 40) == "x" * 50


@pytest.mark.parametrize(
    "text", ["agents: " + "[" * 500_000, "agents: {a: " + "{b: " * 200_000, "- " * 500_000]
)
def test_the_completion_of_a_file_that_is_nested_too_deep_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("PALLAS_AGENTS_CONFIG", raising=False)
    (tmp_path / "agents.yaml").write_text("agents:\n  jarvis: {description: Helps}\n")
    assert declared(tmp_path) == {"jarvis": "Helps"}
    (tmp_path / "agents.yaml").write_text(text)
    with pytest.raises(RecursionError):
        declared(tmp_path)
