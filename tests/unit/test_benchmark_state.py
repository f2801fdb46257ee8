"""What measured fleets keep is not in the folders of the user who runs a benchmark."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import benchmarks.__main__
import benchmarks.chaos.__main__
import benchmarks.soak.__main__
from benchmarks.programs import own_state

FOLDERS = ("XDG_STATE_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The user's folders."""
    found = {name: str(tmp_path / name) for name in FOLDERS}
    for name, folder in found.items():
        monkeypatch.setenv(name, folder)
    return found


def folders() -> dict[str, str]:
    return {name: os.environ[name] for name in FOLDERS}


def test_the_folders_of_a_block_end_with_it(users: dict[str, str]) -> None:
    with own_state():
        (own,) = {Path(folder).parent for folder in folders().values()}
        assert own.is_dir()
        assert not users.items() & folders().items()
    assert not own.exists()
    assert folders() == users


def test_bench_soak_and_chaos_run_in_such_a_block(
    users: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def measure() -> list[object]:
        seen.append(folders())
        return []

    async def run(*_: object) -> int:
        seen.append(folders())
        return 0

    monkeypatch.setattr(benchmarks.__main__, "diffs", SimpleNamespace(measure=measure))
    monkeypatch.setattr(benchmarks.__main__.compileall, "compile_dir", lambda *_, **__: True)
    monkeypatch.setattr(benchmarks.soak.__main__, "_soak", run)
    monkeypatch.setattr(benchmarks.chaos.__main__, "_chaos", run)
    for module, arguments in (
        (benchmarks.__main__, ["diffs"]),
        (benchmarks.soak.__main__, []),
        (benchmarks.chaos.__main__, []),
    ):
        monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
        assert module.main() == 0
    assert len(seen) == 3
    assert not any(users.items() & each.items() for each in seen)
