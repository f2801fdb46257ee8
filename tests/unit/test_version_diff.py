"""How versions of an agent are compared: texts, settings, tools, files; what is masked, what is bounded."""

import os
from hashlib import sha256
from pathlib import Path
from time import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.config import AgentConfig, Project
from pallas.executors import Child, ExecutorInfo
from pallas.fleet.reload.agent_digest import AgentDigest, digest_of
from pallas.fleet.reload.agent_version import same_settings
from pallas.fleet.reload.failure_report import report_failure
from pallas.fleet.reload.source_files import MAX_BYTES, MAX_TEXTS, SourceFiles
from pallas.fleet.reload.version_diff import (
    MAX_ALL,
    MAX_CHANGES,
    MAX_DIFF,
    bounded,
    changes,
    file_changes,
    text_diff,
)
from pallas.model import Change, Fault, FaultType, ServerDetail, ToolDetail
from pallas.model.redaction import forget, redact

AGENT = AgentConfig("one", 1, "One", "About one", module="agents.one")


def seen(info: ExecutorInfo, agent: AgentConfig = AGENT, **settings: object) -> AgentDigest:
    project = Project(Path("/p"), Path("/p/agents.yaml"), "test", {}, settings=settings)
    return digest_of(info, project, agent)


def tools(*each: ToolDetail, server: str = "echo") -> tuple[ServerDetail, ...]:
    return (ServerDetail(server, each),)


def test_nothing_is_different_between_the_same() -> None:
    info = ExecutorInfo("m", servers=("echo",), instruction="x", tools=tools(ToolDetail("echo")))
    settings = {"mcp": {"servers": {"echo": {"url": "http://x", "headers": {"A": "b"}}}}}
    assert changes(seen(info, **settings), seen(info, **settings)) == ()


def test_instruction_model_and_children_are_told() -> None:
    before = ExecutorInfo("a", instruction="one\ntwo\nthree", children=(Child("x", "old", "m"), Child("y")))
    after = ExecutorInfo("b", instruction="one\n2\nthree", children=(Child("x", "new", "n"), Child("z")))
    told = changes(seen(before), seen(after))
    assert [(each.part, each.kind, each.name) for each in told] == [
        ("instruction", "changed", ""),
        ("instruction", "changed", "x"),
        ("model", "changed", "x"),
        ("agent", "removed", "y"),
        ("agent", "added", "z"),
        ("model", "changed", ""),
    ]
    assert told[0].diff == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert (told[-1].before, told[-1].after) == ("a", "b")


def test_a_schema_is_told_by_the_lines_that_differ_and_its_order_is_no_difference() -> None:
    old = ToolDetail("t", input_schema='{"type": "object", "properties": {"a": {"type": "string"}}}')
    same = ToolDetail("t", input_schema='{"properties": {"a": {"type": "string"}}, "type": "object"}')
    new = ToolDetail("t", input_schema='{"properties": {"a": {"type": "integer"}}, "type": "object"}')
    before = seen(ExecutorInfo(servers=("echo",), tools=tools(old)))
    assert changes(before, seen(ExecutorInfo(servers=("echo",), tools=tools(same)))) == ()
    (change,) = changes(before, seen(ExecutorInfo(servers=("echo",), tools=tools(new))))
    assert (change.part, change.kind, change.name) == ("tools", "changed", "echo/t")
    lines = change.diff.splitlines()
    assert '-      "type": "string"' in lines
    assert '+      "type": "integer"' in lines


def test_tools_of_a_server_that_could_not_be_asked_are_no_difference() -> None:
    before = seen(ExecutorInfo(servers=("echo",), tools=tools(ToolDetail("t"))))
    away = (ServerDetail("echo", problem="it could not be reached"),)
    assert changes(before, seen(ExecutorInfo(servers=("echo",), tools=away))) == ()
    assert changes(before, seen(ExecutorInfo(servers=("echo",)))) == ()


def test_a_secret_in_the_settings_of_a_server_is_told_and_not_shown() -> None:
    info = ExecutorInfo(servers=("echo",))

    def servers(token: str) -> dict[str, object]:
        return {"servers": {"echo": {"url": "http://x", "headers": {"Authorization": f"Bearer {token}"}}}}

    (change,) = changes(seen(info, mcp=servers("first-token-1")), seen(info, mcp=servers("other-token-2")))
    assert (change.part, change.kind, change.name) == ("servers", "changed", "echo")
    assert "token-" not in repr(change)


def test_keys_of_the_configuration_are_told_as_they_are_written() -> None:
    after = AgentConfig("one", 1, "One", "", module="agents.one", run_timeout=60)
    told = changes(seen(ExecutorInfo()), seen(ExecutorInfo(), after))
    assert told == (
        Change("config", "removed", "description", "About one", ""),
        Change("config", "changed", "run_timeout", "1800", "60"),
    )


def test_where_something_stands_is_no_difference() -> None:
    from dataclasses import replace

    from pallas.config.where import Where

    project = Project(Path("/p"), Path("/p/agents.yaml"), "test", {})
    moved = replace(AGENT, where=Where("agents.yaml", 12))
    assert same_settings(project, AGENT, project, moved)
    assert not same_settings(project, AGENT, replace(project, settings={"default_model": "x"}), AGENT)
    assert changes(seen(ExecutorInfo()), seen(ExecutorInfo(), moved)) == ()


def test_changes_are_bounded_in_number_and_length() -> None:
    many = tools(*(ToolDetail(f"t{number:03}") for number in range(300)))
    none = ExecutorInfo(servers=("echo",), tools=tools())
    told = changes(seen(none), seen(ExecutorInfo(servers=("echo",), tools=many)))
    assert len(told) == MAX_CHANGES
    assert told[-1].after == "and 201 more changes"
    before, after = (seen(ExecutorInfo(instruction=f"{word}\n" * 15_000)) for word in ("old", "new"))
    (change,) = changes(before, after)
    assert len(change.diff) < MAX_DIFF + 100
    assert "more characters" in change.diff
    huge = ToolDetail("t", description="x\n" * 15_000, input_schema='{"a": "' + "y" * 30_000 + '"}')
    with_one = seen(ExecutorInfo(servers=("echo",), tools=tools(ToolDetail("t"))))
    (change,) = changes(with_one, seen(ExecutorInfo(servers=("echo",), tools=tools(huge))))
    assert len(change.diff) <= 20_000


def test_all_diffs_of_an_event_together_are_bounded() -> None:
    many = [Change("file", "changed", str(number), diff="x" * 10_000) for number in range(10)]
    told = bounded(many)
    assert [change.name for change in told] == [change.name for change in many]
    assert sum(len(change.diff) for change in told) <= MAX_ALL
    assert told[0].diff
    assert "left out" in told[-1].after


def test_a_diff_is_clean_and_holds_no_secret() -> None:
    redact("hunter2-hunter2")
    try:
        diff = text_diff("a", "b\x1b[31m hunter2-hunter2")
    finally:
        forget("hunter2-hunter2")
    assert diff == "@@ -1 +1 @@\n-a\n+b␛[31m [redacted]"


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_diff_of_any_texts_is_clean_and_bounded(old: str, new: str) -> None:
    diff = text_diff(old, new)
    assert len(diff) < MAX_DIFF + 100
    assert not any(ord(character) < 32 and character not in "\n\t" for character in diff)
    assert (diff == "") == (old.splitlines() == new.splitlines())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("one\n")
    os.utime(tmp_path / "a.py", (1_700_000_000, 1_700_000_000))
    return tmp_path


def later() -> float:
    """A moment at which everything written so far was written long ago."""
    return time() + 10


def test_what_is_written_again_as_it_was_has_not_changed(root: Path) -> None:
    sources = SourceFiles().with_more([root / "a.py", root / "gone.py"], later())
    assert sources.changed() == ()
    (root / "a.py").write_text("one\n")
    assert sources.changed() == ()
    (root / "a.py").write_text("two\n")
    (root / "gone.py").write_text("")
    assert sources.changed() == (root / "a.py", root / "gone.py")
    (root / "gone.py").unlink()
    (root / "a.py").unlink()
    assert sources.changed() == (root / "a.py",)


def test_what_was_written_while_a_version_was_made_is_not_certain(root: Path) -> None:
    sources = SourceFiles().with_more([root / "a.py"], time() - 3600)
    assert not sources.certain
    assert sources.changed() == (root / "a.py",)


def test_a_file_nobody_knew_of_counts_as_changed(root: Path) -> None:
    sources = SourceFiles().with_more([root / "a.py"], later())
    assert sources.changed([root / "b.py"]) == (root / "b.py",)


def test_texts_are_kept_within_bounds(root: Path) -> None:
    (root / "large.txt").write_text("x" * (MAX_BYTES + 1))
    (root / "picture.png").write_bytes(b"\x89PNG\0\xff")
    names = [f"n{number:03}.py" for number in range(MAX_TEXTS + 20)]
    for name in names:
        (root / name).write_text(name)
    sources = SourceFiles().with_more([*root.iterdir()], later())
    assert sum(source.text is not None for source in sources.files.values()) == MAX_TEXTS
    assert sources.text(root / "large.txt") is sources.text(root / "picture.png") is None
    with (root / "large.txt").open("a") as file:
        file.write("y")
    assert sources.changed() == (root / "large.txt",)
    (change,) = file_changes(root, sources.changed(), sources, None)
    assert (change.kind, change.name, change.diff) == ("changed", "large.txt", "")
    assert "too long" in change.after


def test_files_that_came_and_went_are_told(root: Path) -> None:
    before = SourceFiles().with_more([root / "a.py", root / "b.py"], later())
    (root / "a.py").unlink()
    (root / "b.py").write_text("new\n")
    told = file_changes(root, before.changed(), before, None)
    assert [(each.kind, each.name) for each in told] == [("removed", "a.py"), ("added", "b.py")]
    assert told[0].diff.endswith("-one")
    assert told[1].diff.endswith("+new")


def test_the_digest_of_files_is_what_sha256sum_makes_of_them(root: Path) -> None:
    (root / "b.py").write_text("two\n")
    paths = [root / "b.py", root / "a.py"]
    sources = SourceFiles().with_more([*paths, root / "gone.py"], later())
    told = "".join(f"{sha256((root / each).read_bytes()).hexdigest()}  {each}\n" for each in ("a.py", "b.py"))
    assert sources.digest_of([*paths, root / "gone.py"], root) == sha256(told.encode()).hexdigest()
    assert sources.digest_of([], root) == sources.digest_of([root / "other.py"], root) == ""
    unsure = SourceFiles().with_more(paths, time() - 3600)
    assert unsure.digest_of(paths, root) == ""


def test_a_failure_says_where_and_hides_what_is_secret() -> None:
    fault = Fault(
        FaultType.CONFIG, "agents/one.py:3: no api_key=sk-0123456789abcdef", data={"place": "agents/one.py:3"}
    )
    fault.__cause__ = ValueError("\x1b[2J password: hunter2hunter2")
    failure = report_failure(fault)
    assert failure.place == "agents/one.py:3"
    assert "ValueError" in failure.story
    for text in (failure.error, failure.story):
        assert "sk-0123" not in text
        assert "hunter2" not in text
        assert "\x1b" not in text
    plain = report_failure(KeyError("x"))
    assert (plain.error, plain.place) == ("KeyError: 'x'", "")
