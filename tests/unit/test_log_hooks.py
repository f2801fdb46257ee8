"""Hooks on functions of others: each on its own, each exactly once."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.hooks import uninstall

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import Fault
from pallas.telemetry.log import close_logging, setup_logging


@pytest.fixture
def theirs() -> ModuleType:
    """A module of someone else with something to wrap."""
    module = ModuleType("theirs")

    async def dispatch(server: str, tool: str) -> list[str]:
        return [f"{server}/{tool}"]

    def prepare(config: str, *, retries: int = 0) -> str:
        return f"{config} {retries}"

    module.dispatch = dispatch  # type: ignore[attr-defined]
    module.prepare = prepare  # type: ignore[attr-defined]
    return module


def counting(name: str, module: ModuleType) -> Hook:
    """A hook that adds its name to what ``dispatch`` returns: once for each time it is applied."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapped(server: str, tool: str) -> list[str]:
            return [*await original(server, tool), name]

        return wrapped

    return Hook(name, module, "dispatch", ("server", "tool"), wrap)


def called(module: ModuleType) -> list[str]:
    return list(asyncio.run(module.dispatch("docs", "search")))


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_installing_twice_applies_a_hook_once(theirs: ModuleType) -> None:
    # PR-29
    assert library_hooks.install(counting("trace", theirs)) is True
    assert library_hooks.install(counting("trace", theirs)) is False
    assert called(theirs) == ["docs/search", "trace"]


def test_a_third_hook_added_later_leaves_each_applied_once(theirs: ModuleType) -> None:
    # PR-29
    first, second, third = (counting(name, theirs) for name in ("trace", "bearer", "transport"))
    for hook in (first, second):
        library_hooks.install(hook)
    for hook in (first, second, third, first, second, third):
        library_hooks.install(hook)
    assert called(theirs) == ["docs/search", "trace", "bearer", "transport"]
    assert library_hooks.installed(theirs, "dispatch") == ("transport", "bearer", "trace")


def test_a_hook_on_another_target_is_not_hidden_by_the_first(theirs: ModuleType) -> None:
    # PR-29
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(config: str, *, retries: int = 0) -> str:
            return f"wrapped {original(config, retries=retries)}"

        return prepare

    library_hooks.install(counting("trace", theirs))
    assert library_hooks.install(Hook("auth", theirs, "prepare", ("config", "retries"), wrap)) is True
    assert theirs.prepare("docs", retries=2) == "wrapped docs 2"
    assert called(theirs) == ["docs/search", "trace"]


def test_a_hook_that_someone_took_away_is_installed_again(theirs: ModuleType) -> None:
    # PR-29
    original = vars(theirs)["dispatch"]
    library_hooks.install(counting("trace", theirs))
    theirs.dispatch = original  # type: ignore[attr-defined]
    assert library_hooks.install(counting("trace", theirs)) is True
    assert called(theirs) == ["docs/search", "trace"]


def test_a_hook_under_a_foreign_wrapper_is_still_seen(theirs: ModuleType) -> None:
    # PR-29
    import functools

    library_hooks.install(counting("trace", theirs))
    ours = vars(theirs)["dispatch"]

    @functools.wraps(ours)
    async def foreign(server: str, tool: str) -> list[str]:
        return [*await ours(server, tool), "foreign"]

    theirs.dispatch = foreign  # type: ignore[attr-defined]
    library_hooks.install(counting("trace", theirs))
    assert called(theirs) == ["docs/search", "trace", "foreign"]
    library_hooks.install(counting("bearer", theirs))
    assert called(theirs) == ["docs/search", "trace", "foreign", "bearer"]
    with pytest.raises(Fault, match="wrapped by someone else"):
        uninstall(counting("trace", theirs))


def test_one_hook_is_taken_out_from_between_the_others(theirs: ModuleType) -> None:
    original = vars(theirs)["dispatch"]
    trio = [counting(name, theirs) for name in ("trace", "bearer", "transport")]
    for hook in trio:
        library_hooks.install(hook)
    assert uninstall(trio[1]) is True
    assert called(theirs) == ["docs/search", "trace", "transport"]
    assert uninstall(trio[1]) is False
    assert uninstall(trio[0]) is True
    assert uninstall(trio[2]) is True
    assert vars(theirs)["dispatch"] is original


def test_hooks_are_named_in_one_line_of_the_log_and_each_at_debug(theirs: ModuleType, tmp_path: Path) -> None:
    # PR-29 and PR-30
    library_hooks.tell()  # of whatever was installed before, nobody hears here
    log_file = setup_logging("debug", path=tmp_path / "pallas.log", stderr=False)
    try:
        for _ in range(2):
            for name in ("trace", "bearer"):
                library_hooks.install(counting(name, theirs))
            library_hooks.tell()
    finally:
        close_logging()
    told = [record for record in records(log_file) if "installed" in record["message"]]
    assert [(record["level"], record.get("hook")) for record in told] == [
        ("DEBUG", "trace"),
        ("DEBUG", "bearer"),
        ("INFO", None),
    ]
    assert "theirs.dispatch" in told[0]["message"]
    assert told[0]["logger"] == "pallas.mcp_client.library_hooks"
    assert told[2]["message"] == "hooks installed in fast-agent: trace, bearer"
    assert told[2]["hooks"] == ["trace", "bearer"]


def test_a_target_that_changed_is_refused_and_left_as_it_is(theirs: ModuleType) -> None:
    original = vars(theirs)["dispatch"]
    hook = counting("trace", theirs)
    changed = Hook("trace", theirs, "dispatch", ("server", "tool", "meta"), hook.wrap)
    with pytest.raises(Fault, match=r"theirs\.dispatch takes \(server, tool\), not \(server, tool, meta\)"):
        library_hooks.install(changed)
    with pytest.raises(Fault, match="is not there"):
        library_hooks.install(Hook("gone", theirs, "gone", (), hook.wrap))
    assert vars(theirs)["dispatch"] is original


@pytest.mark.parametrize("bad", ["nothing", "plain"])
def test_a_wrapper_that_cannot_be_awaited_is_refused(theirs: ModuleType, bad: str) -> None:
    # PR-31: the class of defect behind "object NoneType can't be used in 'await' expression"
    def wrap(original: Callable[..., Any]) -> Any:
        def plain(server: str, tool: str) -> None:
            return None

        return plain if bad == "plain" else None

    original = vars(theirs)["dispatch"]
    with pytest.raises(Fault, match="hook broken"):
        library_hooks.install(Hook("broken", theirs, "dispatch", ("server", "tool"), wrap))
    assert vars(theirs)["dispatch"] is original


def test_a_method_is_wrapped_in_its_class() -> None:
    class Session:
        async def call(self, tool: str) -> str:
            return tool

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        async def call(self: Session, tool: str) -> str:
            logging.getLogger(__name__).debug("called")
            return f"wrapped {await original(self, tool)}"

        return call

    hook = Hook("call", Session, "call", ("self", "tool"), wrap)
    for _ in range(3):
        library_hooks.install(hook)
    assert asyncio.run(Session().call("search")) == "wrapped search"
    assert hook.target.endswith("Session.call")
