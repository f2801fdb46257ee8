"""`pallas test --against`: the same tests through two versions of a project."""

import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pallas.agent_tests.agent_test_file import FOLDER
from pallas.config.files import is_there
from pallas.fleet.parent_death import leashed
from pallas.model import Cost
from pallas.model.money import cost_in
from pallas.safe_text import one_line, sanitize

from .resources.fleet_requests import OK, REFUSED, USAGE, Wrong, complain
from .resources.text_tables import table

_GIT_S: Final = 60.0
_TESTS_S: Final = 6 * 3600.0
"""Seconds for the tests of one version."""
_UNTRACKED: Final = (".env", "fastagent.secrets.yaml")
"""Files of a project that are in no revision, and that its agents need."""
_NOT_COPIED: Final = (".git", ".venv", "__pycache__")
_MAX_SHOWN: Final = 60


def compare_versions(
    patterns: Sequence[str], against: str, options: Sequence[str], root: Path, record: Path | None
) -> int:
    """Run tests live in the project and in another version of it; print both, and where they part.

    Returns 1 if a test passes less often now, 2 for wrong use.
    """
    try:
        _check(root, against)
        with _ended_by_sigterm(), TemporaryDirectory(prefix="pallas-test-") as scratch:
            place = Path(scratch)
            return _compare(patterns, against, options, root, record, place)
    except Wrong as error:
        complain(str(error))
    except (OSError, shutil.Error) as error:
        complain(f"pallas test: --against {one_line(against, _MAX_SHOWN)}: {one_line(str(error), 300)}")
    return USAGE


def _compare(
    patterns: Sequence[str],
    against: str,
    options: Sequence[str],
    root: Path,
    record: Path | None,
    place: Path,
) -> int:
    recordings = record or place / "recordings"
    other = _version(root, against, place / "project")
    before = _tested(other, patterns, options, recordings / "before")
    now = _tested(root, patterns, options, recordings / "now")
    rows = [_row(before.get(name), each) for name, each in now.items()]
    print(table(("TEST", one_line(against, 20).upper(), "NOW", "TOKENS", "COST", "SECONDS"), rows))
    for name in (each for each in now if each in before):
        for line in _difference(before[name], now[name], recordings):
            print(line)
    if record is not None:
        print(f"the recordings are in {record}/before and {record}/now")
    worse = [name for name, each in now.items() if each["passRate"] < before.get(name, each)["passRate"]]
    return REFUSED if worse else OK


def _check(root: Path, against: str) -> None:
    """Raise Wrong where nothing can be compared."""
    if not root.is_dir():
        raise Wrong(f"pallas test: there is no folder {root}")
    if not (root / FOLDER).is_dir():
        raise Wrong(
            f"pallas test: there is no folder {FOLDER} in {root}; `pallas keep RUN` makes a test of a run"
        )
    if against.startswith("-"):
        raise Wrong(
            f"pallas test: --against {one_line(against, _MAX_SHOWN)}: name a revision of git, or a folder"
        )


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """In this block SIGTERM leaves no copy of the project, whose files may hold secrets."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _version(root: Path, against: str, target: Path) -> Path:
    """The other version of the project, with the tests of this one. Raises Wrong, OSError."""
    folder = Path(against)
    if is_there(folder / "agents.yaml"):
        shutil.copytree(folder, target, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    else:
        _checkout(root, against, target)
        for name in _UNTRACKED:
            if (root / name).is_file() and not (target / name).exists():
                shutil.copy(root / name, target / name)
    tests = target / FOLDER
    for place in (tests.parent, tests):
        if place.is_symlink():
            place.unlink()  # of the copy: what it points to is another's
    if tests.exists():
        shutil.rmtree(tests)
    shutil.copytree(root / FOLDER, tests)
    return target


def _checkout(root: Path, revision: str, target: Path) -> None:
    try:
        prefix = _git(root, "rev-parse", "--show-prefix").decode().strip()
        top = Path(_git(root, "rev-parse", "--show-toplevel").decode().strip())
        archive = _git(top, "archive", "--format=tar", f"{revision}:{prefix}" if prefix else revision)
    except FileNotFoundError:
        raise Wrong("pallas test: git is not installed; name a folder with --against") from None
    except subprocess.TimeoutExpired:
        raise Wrong(
            f"pallas test: git did not answer in {_GIT_S:.0f} s; name a folder with --against"
        ) from None
    except subprocess.CalledProcessError as error:
        why = one_line(error.stderr.decode("utf-8", "replace"), 200)
        shown = one_line(revision, _MAX_SHOWN)
        raise Wrong(
            f"pallas test: --against {shown}: no folder of a project, and no revision: {why}"
        ) from None
    target.mkdir()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as files:
            files.extractall(target, filter="data")
    except tarfile.TarError as error:
        shown = one_line(revision, _MAX_SHOWN)
        raise Wrong(f"pallas test: {shown} cannot be unpacked: {one_line(str(error), 200)}") from None
    if not (target / "agents.yaml").exists():
        raise Wrong(f"pallas test: there is no agents.yaml in {one_line(revision, _MAX_SHOWN)}")


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=_GIT_S).stdout


def _tested(
    root: Path, patterns: Sequence[str], options: Sequence[str], record: Path
) -> dict[str, Mapping[str, Any]]:
    """The tests of a version by name, run in a process of its own. Raises Wrong."""
    command = [sys.executable, "-P", "-m", "pallas.server", "test", "--live", "--own", *options, "-o", "json"]
    command += ["--summary", ""]  # whatever the environment names: this command has one of its own
    command += ["--record", str(record.absolute()), "--project", str(root.absolute()), "--", *patterns]
    try:
        done = subprocess.run(leashed(tuple(command)), capture_output=True, check=False, timeout=_TESTS_S)
        if done.returncode in (OK, REFUSED):
            return {each["name"]: each for each in json.loads(done.stdout)["tests"]}
    except subprocess.TimeoutExpired:
        raise Wrong(f"pallas test: the tests did not end in {_TESTS_S / 3600:.0f} hours") from None
    except ValueError:
        raise Wrong(f"pallas test: the tests of {root} gave no result") from None
    said = sanitize(done.stderr.decode("utf-8", "replace")).strip()
    raise Wrong(said or f"pallas test: the tests of {root} ended with {done.returncode}")


def _row(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    sides = [each for each in (before, now) if each is not None]
    took = [sum(trial["seconds"] for trial in each["trials"]) / each["runs"] for each in sides]
    used = [each["tokens"] // each["runs"] for each in sides]
    return (
        now["name"],
        _passed(before),
        _passed(now),
        " -> ".join(map(str, used)),
        " -> ".join(_cost(each) for each in sides),
        " -> ".join(f"{each:.2f}" for each in took),
    )


def _cost(test: Mapping[str, Any]) -> str:
    """What a run of a test cost on average."""
    whole = cost_in(test)
    mean = Cost(None if whole.cost is None else whole.cost // test["runs"], whole.unpriced)
    return mean.text or "-"


def _passed(test: Mapping[str, Any] | None) -> str:
    return "-" if test is None else f"{test['passed']}/{test['runs']} {test['verdict']}"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any], recordings: Path) -> Iterator[str]:
    """Where the first runs of a test part in the two versions."""
    from pallas.recordings.diff_lines import name_of, place_of
    from pallas.recordings.recording_folder import BadRecording, read
    from pallas.recordings.run_diff import diff

    names = [next(iter(each["trials"][0]["recordings"]), None) for each in (before, now)]
    try:
        sides = [
            read(recordings / side / name)
            for side, name in zip(("before", "now"), names, strict=True)
            if name
        ]
    except (BadRecording, OSError):
        return
    if len(sides) == len(names) and (found := diff(*sides).first_divergence) is not None:
        yield sanitize(f"{now['name']}: they differ first at {name_of(found)} {place_of(found)}")
